// bzip2, as libbz2 decodes it.

#pragma once

#include <memory>

#include "parser/codec/decoder.h"

namespace ckptfs {

std::unique_ptr<Decoder> MakeBzip2Decoder();

}  // namespace ckptfs
