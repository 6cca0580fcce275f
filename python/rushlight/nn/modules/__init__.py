"""The modules of rushlight.nn, one file a family."""
from . import activation, container, distance, dropout, flatten, linear, loss, module, normalization, sparse  # noqa: F401
from .activation import *  # noqa: F403
from .container import *  # noqa: F403
from .distance import *  # noqa: F403
from .dropout import *  # noqa: F403
from .flatten import *  # noqa: F403
from .linear import *  # noqa: F403
from .loss import *  # noqa: F403
from .module import Module
from .normalization import *  # noqa: F403
from .sparse import *  # noqa: F403

__all__ = ["Module"] + [name for m in (activation, container, distance, dropout, flatten, linear, loss, normalization,
                                       sparse) for name in m.__all__]
