"""Copy a model with its weights in full precision.

Quantized weights make the engine quantize its intermediate values, too. Their rounding then depends
on the other tokens of a pass. In full precision, two ways to decode differ only in the order of
sums.
"""

from __future__ import annotations

from pathlib import Path

import gguf
from make_test_models import read_metadata


def write_in_full_precision(model: Path, out: Path) -> Path:
    """Write a copy of a GGUF file whose matrices are f32, and return its path."""
    reader = gguf.GGUFReader(model)
    writer = gguf.GGUFWriter(out, reader.fields["general.architecture"].contents())
    for key, entry in read_metadata(model).items():
        if key not in ("general.architecture", "general.file_type"):
            writer.add_key_value(key, entry.value, entry.type, entry.item_type)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, gguf.quants.dequantize(tensor.data, tensor.tensor_type))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return out
