// One visitor made of several functions.

#pragma once

namespace ckptfs {

// For std::visit where what is done depends on the kind: each kind has its own function, and the
// compiler refuses a visitor that lacks one. (A default function `auto&` would undo that.)
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace ckptfs
