"""Train a private ranking on a table: every record is protected, the AUC is what counts.

python examples/private_auc.py
"""

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split

from pairwise import PrivateAUCClassifier

# Bounds from the description of the measurements, never from these records: 30 features, each positive.
UPPER = np.repeat([[30, 40, 200, 2600, 0.2, 0.4, 0.5, 0.25, 0.4, 0.1]], 3, axis=0)
UPPER[1] = [3, 5, 25, 550, 0.04, 0.15, 0.4, 0.06, 0.08, 0.03]
UPPER[2] = [40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21]


def main() -> None:
    """Print the test AUC for several epsilons beside the non-private one, and the statement of the last."""
    X, y = load_breast_cancer(return_X_y=True)
    X = 2 * np.clip(X / UPPER.ravel(), 0, 1) - 1
    train, test, y_train, y_test = train_test_split(X, y, random_state=0, stratify=y)
    for epsilon in (0.5, 1.0, 2.0, float("inf")):
        model = PrivateAUCClassifier(
            epsilon=epsilon, delta=1e-5, data_norm=np.sqrt(30), classes=[0, 1]
        )
        model.fit(train, y_train)
        print(
            f"epsilon {epsilon:g}: AUC {roc_auc_score(y_test, model.decision_function(test)):.3f}"
        )
        if np.isfinite(epsilon):
            statement = model.statement_
    print(statement)


if __name__ == "__main__":
    main()
