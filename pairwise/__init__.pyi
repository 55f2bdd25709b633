"""The public names of the package, each once: type checkers read them here, and ``__init__.py`` loads them from here."""

from .accounting.budget import PrivacyBudget as PrivacyBudget
from .algorithms.options import Edges as Edges
from .algorithms.options import Ftrl as Ftrl
from .algorithms.options import Gradient as Gradient
from .algorithms.options import OffPair as OffPair
from .algorithms.options import OnPair as OnPair
from .algorithms.options import Pointwise as Pointwise
from .algorithms.options import SGDOutput as SGDOutput
from .algorithms.options import Statistics as Statistics
from .errors import PairwiseError as PairwiseError
from .estimators.auc import PrivateAUCClassifier as PrivateAUCClassifier
from .estimators.dpp import DPPMetricLearner as DPPMetricLearner
from .estimators.features import PublicFeatures as PublicFeatures
from .estimators.features import PublicOneHot as PublicOneHot
from .estimators.features import PublicScaler as PublicScaler
from .estimators.metric import PrivateMetricLearner as PrivateMetricLearner
from .estimators.pipelines import PrivatePipeline as PrivatePipeline
from .estimators.search import PrivateSearchCV as PrivateSearchCV
from .estimators.trials import PrivateScorer as PrivateScorer
from .retrieval.subset import SubsetQuery as SubsetQuery
from .statement import DataSetStatement as DataSetStatement
from .statement import UnsoundWarning as UnsoundWarning
