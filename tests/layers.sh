#!/bin/sh
# Checks who includes whom: layers.sh ROOT.
#
#   tools/ckpt > fs > parser/view > parser/*.h > format, source > layer > codec > io > base
#
# A room may include those to its right, and itself. Formats and sources never meet. A source knows the
# interface of a scheme and no checkpoint; a format may open what it finds inside (detect.h).
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

# The headers of parser/ itself, which are about checkpoints, formats and schemes.
story='parser/[a-z_]+\.h'
forbid parser 'fs/|tools/|fuse'
forbid parser/base "parser/(io|codec|layer|source|format|view)/|$story"
forbid parser/io "parser/(codec|layer|source|format|view)/|$story"
forbid parser/codec "parser/(layer|source|format|view)/|$story"
forbid parser/layer "parser/(source|format|view)/|$story"
forbid parser/source 'parser/(layer|format|view)/|parser/(format|checkpoint|detect|open|read_options)\.h'
forbid parser/format 'parser/(source|view)/|parser/(scheme|open)\.h'
forbid fs 'tools/|parser/(source|format|codec)/|parser/(format|scheme)\.h'
forbid "$(echo fs/tree.* fs/operations.* fs/directory_operations.* fs/reply.*)" 'fs/tensordict|parser/checkpoint\.h'
forbid tools/ckpt 'parser/(source|format|codec)/|parser/(format|scheme)\.h|fuse|fs/(directory_operations|mount|namespace|operations|reply|session|store)'
forbid parser/view 'parser/source/|parser/(open|scheme)\.h'
forbid "$(echo parser/*.cc)" 'parser/view/'
forbid "$(echo parser/*.h)" 'parser/(codec|layer|source|format|view)/'

# The linker takes one of two classes of one name for the other, and says nothing.
twice=$(find parser fs -name '*.h' | while read -r header; do
  space=$(grep -m 1 '^namespace ' "$header")
  sed -nE "s/^(struct|class|enum class) ([A-Za-z0-9]+)( final)?( : [^{;]*)? \{.*/$space \2/p" "$header"
done | sort | uniq -d)
if [ -n "$twice" ]; then
  echo "error: there are two of: $twice"
  status=1
fi
exit $status
