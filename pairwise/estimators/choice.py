"""The choice of an algorithm and its options, for estimators that have several."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from pairwise.algorithms.options import Options
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import PrivateEstimator

if TYPE_CHECKING:
    from sklearn.utils import Tags

_PREFIX = "algorithm__"


class AlgorithmChoice(PrivateEstimator):
    """Base of estimators with a parameter ``algorithm``: an option object, or the name of one in ``_algorithms``."""

    algorithm: str | Options
    _algorithms: ClassVar[Mapping[str, Options]] = {}

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        return tags

    @property
    def _options(self) -> Options:
        """The options that ``algorithm`` means, of a type that this estimator has."""
        options = self.algorithm
        if isinstance(options, str) and options in self._algorithms:
            return self._algorithms[options]
        if type(options) in {type(each) for each in self._algorithms.values()}:
            return options  # type: ignore[return-value]
        raise InvalidParameterError(
            f"algorithm must be one of {', '.join(self._algorithms)}, or options such as "
            f"{type(next(iter(self._algorithms.values()))).__name__}(); found {options!r}."
        )

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``algorithm__<option>`` sets an option of the algorithm, also of one given by name.

        Parameters
        ----------
        **params : dict
        """
        nested = {k: params.pop(k) for k in list(params) if k.startswith(_PREFIX)}
        super().set_params(**params)
        if nested:
            changes = {name.removeprefix(_PREFIX): value for name, value in nested.items()}
            known = self._options.get_params()
            for name in changes:
                if name not in known:
                    raise ValueError(
                        f"Invalid parameter {name!r} for algorithm {self._options.name!r}. Valid parameters are: "
                        f"{sorted(known)!r}."
                    )
            self.algorithm = replace(self._options, **changes)
        return self
