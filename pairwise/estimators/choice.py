"""The choice of an algorithm and its options, for estimators that have several.

``algorithm`` is an option object of ``pairwise.algorithms.options`` or the name of one. Here an object is found for a name,
``algorithm__<option>`` is set for scikit-learn's searches, options that nothing reads are refused, and options passed flat,
as parameters of the estimator, are taken as deprecated aliases. What the options mean is no business of this module.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from pairwise.algorithms.options import Options
from pairwise.errors import InvalidParameterError
from pairwise.estimators.base import PrivateEstimator

if TYPE_CHECKING:
    from sklearn.utils import Tags

__all__ = ["AlgorithmChoice", "refuse_unread"]

_PREFIX = "algorithm__"


def _is_default(value: Any, default: Any) -> bool:
    return value is default or bool(np.isscalar(value) and value == default)


def refuse_unread(settings: Mapping[str, tuple[Any, Any]], unread: Mapping[str, str]) -> None:
    """Refuse a setting that differs from its default though another setting makes it without effect.

    Parameters
    ----------
    settings : mapping of str to (value, default)
    unread : mapping of str to str
        Each setting without effect, and what makes it so.

    Raises
    ------
    InvalidParameterError
        A setting without effect would let its user believe that it had one.
    """
    for name, why in unread.items():
        if name in settings and not _is_default(*settings[name]):
            raise InvalidParameterError(
                f"{name} was set, but it is not read with {why}. Leave {name} out."
            )


class DeprecatedOption:
    """An option of the algorithm that used to be a parameter of the estimator: reads and sets it, with a warning."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, estimator: AlgorithmChoice | None, owner: type) -> Any:
        if estimator is None:
            return self
        warnings.warn(
            f"{self.name} is an option of the algorithm: read algorithm.{self.name}.",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(estimator._options, self.name, owner._flat_defaults[self.name])  # type: ignore[attr-defined]

    def __set__(self, estimator: AlgorithmChoice, value: Any) -> None:
        estimator.algorithm = estimator._with_flat(estimator.algorithm, {self.name: value})


class AlgorithmChoice(PrivateEstimator):
    """Base of estimators with a parameter ``algorithm``; subclasses list their algorithms in ``_algorithms``."""

    algorithm: str | Options
    _algorithms: ClassVar[Mapping[str, Options]] = {}
    # What else was a parameter once and is worked into ``algorithm`` by ``_with_flat``, with defaults.
    _aliases: ClassVar[dict[str, Any]] = {}
    _flat_defaults: ClassVar[dict[str, Any]] = {}

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "__init__" in vars(cls):
            # What is deprecated is no part of the signature that users and scikit-learn read.
            shown = inspect.signature(cls.__init__)
            named = [p for p in shown.parameters.values() if p.kind is not p.VAR_KEYWORD]
            cls.__init__.__signature__ = shown.replace(parameters=named)  # type: ignore[attr-defined]
        parameters = cls._get_param_names()
        cls._flat_defaults = cls._aliases | {
            field.name: field.default
            for options in reversed(list(cls._algorithms.values()))
            for field in fields(options)
            if field.name not in parameters and field.name != "strong"
        }
        for name in cls._flat_defaults.keys() - cls._aliases.keys():
            alias = DeprecatedOption()
            alias.__set_name__(cls, name)
            setattr(cls, name, alias)

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

    @property
    def _exact(self) -> bool:
        """Whether noise is drawn exactly: by default wherever that is defined, so not in published forms or on samples."""
        sampled = self.hardened is None and self._options.sampled
        return super()._exact and not sampled

    def _refuse_unread(self, unread: Mapping[str, str]) -> None:
        """Refuse options and parameters that were set though the rest of the settings makes them without effect."""
        options = self._options
        settings = {f.name: (getattr(options, f.name), f.default) for f in fields(options)}
        defaults = self._parameter_defaults()
        settings |= {name: (getattr(self, name), default) for name, default in defaults.items()}
        refuse_unread(settings, unread)

    @classmethod
    def _parameter_defaults(cls) -> dict[str, Any]:
        return {n: each.default for n, each in inspect.signature(cls).parameters.items()}

    # -- options by name, and flat ones

    def _chosen(self, algorithm: Any, flat: dict[str, Any]) -> Any:
        """Return what a constructor stores: ``algorithm`` itself, or with the options that were passed flat."""
        if not flat:
            return algorithm
        chosen = self._with_flat(algorithm, flat)
        if isinstance(algorithm, Options) and chosen is not algorithm:
            raise InvalidParameterError(
                f"options stand in algorithm= and differ from the parameters {', '.join(flat)}. Leave the parameters out."
            )
        settings = ", ".join(f"{name}=..." for name in flat)
        written = (
            repr(chosen) if isinstance(chosen, str) else f"{type(chosen).__name__}({settings})"
        )
        warnings.warn(
            f"options of an algorithm as parameters of {type(self).__name__} are deprecated; write algorithm={written}.",
            DeprecationWarning,
            stacklevel=3,
        )
        return chosen

    def _with_flat(self, algorithm: Any, flat: Mapping[str, Any]) -> Any:
        """Return ``algorithm`` with the options in ``flat``; itself where none of them changes it.

        Raises
        ------
        TypeError
            For a name that is no option.
        InvalidParameterError
            For one that the algorithm does not read.
        """
        unknown = [name for name in flat if name not in self._flat_defaults]
        if unknown:
            raise TypeError(f"{type(self).__name__} has no parameter {unknown[0]!r}.")
        # Options that are passed flat belong to what was the default before there was "auto".
        name = next(iter(self._algorithms)) if algorithm == "auto" else algorithm
        options = name if isinstance(name, Options) else self._algorithms.get(name)
        if options is None:
            raise InvalidParameterError(
                f"algorithm must be one of {', '.join(self._algorithms)}; found {algorithm!r}."
            )
        changed = {}
        for name, value in flat.items():
            if not hasattr(options, name):
                if _is_default(value, self._flat_defaults[name]):
                    continue
                readers = [repr(n) for n, each in self._algorithms.items() if hasattr(each, name)]
                raise InvalidParameterError(
                    f"{name} was set, but algorithm {options.name!r} does not read it, {', '.join(readers)} would. "
                    f"Leave {name} out."
                )
            if not _is_default(value, getattr(options, name)):
                changed[name] = value
        return replace(options, **changed) if changed else algorithm

    def set_params(self, **params: Any) -> Any:
        """Set parameters; ``algorithm__<option>`` sets an option of the algorithm, also of one given by name.

        Parameters
        ----------
        **params : dict
        """
        nested = {k: params.pop(k) for k in list(params) if k.startswith(_PREFIX)}
        flat = {k: params.pop(k) for k in list(params) if k in self._flat_defaults}
        super().set_params(**params)
        if nested:
            changes = {name.removeprefix(_PREFIX): value for name, value in nested.items()}
            unknown = [name for name in changes if name not in self._options.get_params()]
            if unknown:
                raise ValueError(
                    f"Invalid parameter {unknown[0]!r} for algorithm {self._options.name!r}. Valid parameters are: "
                    f"{sorted(self._options.get_params())!r}."
                )
            self.algorithm = replace(self._options, **changes)
        if flat:
            self.algorithm = self._with_flat(self.algorithm, flat)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        # Pickles of before held each option as a parameter of its own.
        flat = {name: state[name] for name in self._flat_defaults if name in state}
        state = {name: value for name, value in state.items() if name not in flat}
        if flat:
            state["algorithm"] = self._with_flat(state["algorithm"], flat)
        super().__setstate__(state)
