"""Ask a server for the nearest images of a private one: what is sent is a random set of cells.

python examples/private_retrieval.py
"""

from threading import Thread

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from pairwise import SubsetQuery
from pairwise.retrieval.service import Catalogue, RetrievalClient, RetrievalServer


def main() -> None:
    """Start a server on the loopback interface, query it privately, and count results of the right class."""
    X, y = load_digits(return_X_y=True)
    public, queries, y_public, y_queries = train_test_split(X, y, test_size=200, random_state=0)
    cells = KMeans(40, n_init=1, random_state=0).fit(public).cluster_centers_
    with RetrievalServer(Catalogue(public, cells)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        codebook = RetrievalClient(*server.address).codebook()
        for epsilon in (1.0, 4.0):
            query = SubsetQuery(codebook, epsilon=epsilon)
            client = RetrievalClient(*server.address, query=query)
            right = []
            for x, label in zip(queries, y_queries, strict=True):
                found, _ = client.search(x, k=8)
                right.append(np.mean(y_public[found] == label))
            print(
                f"epsilon {epsilon:g}: {query.size} of {len(codebook)} cells asked for, "
                f"{np.mean(right):.0%} of 8 results of the right class"
            )
        server.shutdown()
    print(query.statement)


if __name__ == "__main__":
    main()
