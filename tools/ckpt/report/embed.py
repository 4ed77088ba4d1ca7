"""Makes the page of ckpt report a header of C++: embed.py OUTPUT PAGE.HTML STYLE.CSS SCRIPT.JS...

The page has marks for the style, the scripts and the data: @style@, @script@ and @data@. It allows
exactly this style and this script, by their hashes: @style_hash@ and @script_hash@.
"""

import base64
import hashlib
import sys
from pathlib import Path

HEADER = """// Made by report/embed.py.

#pragma once

#include <string_view>

namespace ckptfs::ckpt {{

// The page of ckpt report before its data, and after it.
constexpr std::string_view kPageBegin = {begin};
constexpr std::string_view kPageEnd = {end};

}}  // namespace ckptfs::ckpt
"""


def source(text):
    """The value of a source list of Content-Security-Policy that allows an element with this text."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def literal(text):
    return f'R"page({text})page"'


def main(output, page, style, *scripts):
    style = Path(style).read_text(encoding="utf-8")
    script = "".join(Path(name).read_text(encoding="utf-8") for name in scripts)
    text = Path(page).read_text(encoding="utf-8")
    for mark, replacement in (("@style_hash@", source(style)), ("@script_hash@", source(script)),
                              ("@style@", style), ("@script@", script)):
        before, after = text.split(mark)
        text = before + replacement + after
    begin, end = text.split("@data@")
    Path(output).write_text(HEADER.format(begin=literal(begin), end=literal(end)), encoding="utf-8")


main(*sys.argv[1:])
