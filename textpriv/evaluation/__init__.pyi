"""The names of this package, each once; ``__init__.py`` loads them from here."""

from .comparison import Documents as Documents
from .comparison import Task as Task
from .comparison import compare as compare
