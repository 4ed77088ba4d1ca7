// How tensordict makes a file name of a key: odd characters are percent-encoded, which is
// injective.

#pragma once

#include <string>
#include <string_view>

namespace ckptfs {

// Whether tensordict encodes the character in a key.
bool IsOddInKey(char c);

// Appends `c` encoded: "%2F".
void AppendEncoded(std::string& out, char c);

// Returns the file name that tensordict >= 0.13 gives to a key, without its suffix.
std::string EncodeKey(std::string_view key);

}  // namespace ckptfs
