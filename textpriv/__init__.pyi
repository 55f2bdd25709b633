"""The public names of the package, each once: type checkers read them here, and ``__init__.py`` loads them from here."""

from . import evaluation as evaluation
from .engines.frames import privatize_frame as privatize_frame
from .errors import TextprivError as TextprivError
from .guarantees.certificate import Certificate as Certificate
from .guarantees.certificate import certify as certify
from .guarantees.epsilon import choose as choose
from .guarantees.epsilon import epsilon_for as epsilon_for
from .index import Index as Index
from .index import Tree as Tree
from .ledger import DocumentName as DocumentName
from .ledger import Ledger as Ledger
from .mechanisms.contextual import ContextualTEM as ContextualTEM
from .mechanisms.madlib import Madlib as Madlib
from .mechanisms.tem import TEM as TEM
from .mechanisms.tree_tem import TreeTEM as TreeTEM
from .privatizer import Privatizer as Privatizer
from .settings import privatize as privatize
from .statement import PrivacyStatement as PrivacyStatement
from .statement import UnsoundWarning as UnsoundWarning
from .synthesis.label_axes import LabelAxes as LabelAxes
from .synthesis.synthesizer import TextSynthesizer as TextSynthesizer
from .tokenization.policy import TokenPolicy as TokenPolicy
from .vocabulary import Vocabulary as Vocabulary
from .web.render import render as render

__version__: str
