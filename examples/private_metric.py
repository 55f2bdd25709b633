"""Learn a metric from private records, then classify by neighbours among public ones.

The records are made here: 4,000 of three kinds that differ in 3 of 20 features; the other features are noise, and
louder. A metric helps where the given features are badly scaled; on pixels of digits, for example, it need not.

python examples/private_metric.py
"""

import numpy as np
from sklearn.datasets import make_blobs
from sklearn.model_selection import train_test_split
from sklearn.neighbors import KNeighborsClassifier

from pairwise import PrivateMetricLearner


def main() -> None:
    """Print the accuracy of 5 neighbours before and after the private metric."""
    signal, y = make_blobs(4000, n_features=3, centers=3, cluster_std=1.5, random_state=1)
    noise = np.random.default_rng(1).normal(size=(4000, 17)) * 6
    X = np.hstack([signal, noise]) / 40  # a public scale; records beyond norm 1 are clipped
    private, rest, y_private, y_rest = train_test_split(X, y, train_size=0.75, random_state=0)
    public, test, y_public, y_test = train_test_split(rest, y_rest, train_size=0.5, random_state=0)

    def accuracy(transform) -> float:
        neighbours = KNeighborsClassifier(5).fit(transform(public), y_public)
        return neighbours.score(transform(test), y_test)

    print(f"as it is: {accuracy(lambda Z: Z):.3f}")
    for epsilon in (0.5, 1.0, 4.0, float("inf")):
        metric = PrivateMetricLearner(
            epsilon=epsilon, delta=1e-5, n_components=20, classes=range(3)
        )
        metric.fit(private, y_private)
        print(f"epsilon {epsilon:g}: {accuracy(metric.transform):.3f}")


if __name__ == "__main__":
    main()
