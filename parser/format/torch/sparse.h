// Tensors that leave elements out, and tensors of tensors of different sizes.

#pragma once

#include <span>

#include "parser/codec/pickle.h"
#include "parser/format/torch/composite.h"

namespace ckptfs::torch {

// What the constructors are given, composite.cc says. They throw Error: EBADMSG, ENOTSUP for a
// layout that we do not know.
void ComposeSparse(std::span<const pickle::Value> arguments, Composite& composite);
void ComposeNested(std::span<const pickle::Value> arguments, Composite& composite);
void ComposeJagged(std::span<const pickle::Value> arguments, Composite& composite);

}  // namespace ckptfs::torch
