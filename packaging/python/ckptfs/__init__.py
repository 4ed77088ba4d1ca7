"""Opens a model checkpoint as a mapping of tensors, without reading or converting it first.

    import ckptfs

    with ckptfs.open("model.pth") as model:
        weight = model["h.0.ln.weight"]
        net.load_state_dict(model.state_dict("model"), assign=True)

docs/python.md describes the package.
"""

from ckptfs._backend import TensorInfo
from ckptfs._errors import Error
from ckptfs._model import Model
from ckptfs._open import open

__all__ = ["Error", "Model", "TensorInfo", "open"]
