"""The public names of the package, each once: type checkers read them here, and ``__init__.py`` loads them from here."""

from .accounting import Adjacency as Adjacency
from .accounting import PrivacyBudget as PrivacyBudget
from .errors import BudgetClosed as BudgetClosed
from .errors import BudgetExceeded as BudgetExceeded
from .errors import PairwiseError as PairwiseError
from .estimators.auc import PrivateAUCClassifier as PrivateAUCClassifier
from .estimators.dpp import DPPMetricLearner as DPPMetricLearner
from .estimators.lda import PrivateLDA as PrivateLDA
from .estimators.mail import PrivateMail as PrivateMail
from .estimators.metric import PrivateMetricLearner as PrivateMetricLearner
from .estimators.scaling import PrivatePipeline as PrivatePipeline
from .estimators.scaling import PublicScaler as PublicScaler
from .estimators.scaling import check_pipeline as check_pipeline
from .estimators.selection import PrivateScorer as PrivateScorer
from .estimators.selection import TrialCount as TrialCount
from .estimators.selection import private_selection as private_selection
from .pairs.graph import PairGraph as PairGraph
from .pairs.losses import get_loss as get_loss
from .retrieval.subset import SubsetQuery as SubsetQuery
from .statement import PrivacyStatement as PrivacyStatement
from .statement import UnsoundWarning as UnsoundWarning
