"""A subclassed model on two workers, each started by hand in a terminal of its own.

    python examples/subclassed_mlp.py --index 0        # first terminal
    python examples/subclassed_mlp.py --index 1        # second terminal

The script describes the cluster itself, as TensorFlow's tutorials do. On two machines, pass their addresses:
`--workers 10.0.0.7:12345 10.0.0.8:12345`, the same list on both. Needs scikit-learn for its data.
"""

from __future__ import annotations

import argparse
import json
import os

import keras
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

import unisono


class Classifier(keras.Model):
    """Dense layers with one probability at the end."""

    def __init__(self, units: tuple[int, ...] = (32, 16)) -> None:
        super().__init__()
        self.hidden = [keras.layers.Dense(width, activation="relu") for width in units]
        self.last = keras.layers.Dense(1, activation="sigmoid")

    def call(self, x: keras.KerasTensor) -> keras.KerasTensor:
        for layer in self.hidden:
            x = layer(x)
        return self.last(x)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--index", type=int, required=True, help="which of the workers this is")
    parser.add_argument("--workers", nargs="+", default=["localhost:12345", "localhost:23456"])
    parser.add_argument("--epochs", type=int, default=10)
    options = parser.parse_args()

    # Before the strategy is made.
    os.environ["TF_CONFIG"] = json.dumps(
        {"cluster": {"worker": options.workers}, "task": {"type": "worker", "index": options.index}}
    )
    keras.utils.set_random_seed(0)
    x, y = load_breast_cancer(return_X_y=True)
    x_train, x_test, y_train, y_test = train_test_split(x, y, test_size=0.2, random_state=0, stratify=y)
    scaler = StandardScaler().fit(x_train)

    strategy = unisono.MultiWorkerMirroredStrategy()
    with strategy.scope():
        model = Classifier()
        model.compile(optimizer="adam", loss="binary_crossentropy", metrics=["accuracy", keras.metrics.AUC(name="auc")])

    model.fit(
        scaler.transform(x_train),
        y_train,
        batch_size=32 * strategy.num_replicas_in_sync,
        epochs=options.epochs,
        verbose=2,
        validation_split=0.1,
    )
    results = model.evaluate(scaler.transform(x_test), y_test, verbose=0, return_dict=True)
    print(f"worker {strategy.rank}: " + ", ".join(f"{name} {value:.4f}" for name, value in results.items()))


if __name__ == "__main__":
    main()
