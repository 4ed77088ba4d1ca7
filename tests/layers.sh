#!/bin/sh
# Checks who includes whom: layers.sh ROOT. Everybody may use the words in parser/*.h; beyond those,
# fs/ uses parser/, a format uses codecs and layers, a source uses codecs, and formats and sources
# never meet. A codec knows nobody.
cd "$1" || exit 1
status=0

# forbid FILES PATTERN: no #include in FILES matches PATTERN.
forbid() {
  # shellcheck disable=SC2086
  if grep -rnE "#include [<\"]($2)" $1; then
    echo "error: $1 must not include $2"
    status=1
  fi
}

plugs='parser/(format|scheme|checkpoint|detect|open)\.h'
forbid parser 'fs/|fuse|spdlog'
forbid parser/codec "parser/(source|layer|format)/|$plugs"
forbid parser/source "parser/(layer|format)/|parser/(format|checkpoint|detect|open)\.h"
forbid parser/layer "parser/(source|format|codec)/|$plugs"
forbid parser/format 'parser/source/|parser/(scheme|open)\.h'
forbid fs 'parser/(source|format|codec)/|parser/(format|scheme)\.h'
forbid "$(echo fs/tree.* fs/operations.*)" 'fs/tensordict|parser/checkpoint\.h'
for word in parser/*.h; do
  case $word in
    parser/format.h | parser/scheme.h | parser/checkpoint.h | parser/detect.h | parser/open.h) ;;
    *) forbid "$word" 'parser/[a-z]+/' ;;
  esac
done

# The linker takes one of two classes of one name for the other, and says nothing.
twice=$(for header in parser/*.h parser/*/*.h parser/*/*/*.h fs/*.h; do
  space=$(grep -m 1 '^namespace ' "$header")
  sed -nE "s/^(struct|class|enum class) ([A-Za-z0-9]+)( final)?( : [^{;]*)? \{.*/$space \2/p" "$header"
done | sort | uniq -d)
if [ -n "$twice" ]; then
  echo "error: there are two of: $twice"
  status=1
fi
exit $status
