// Pickles of protocols 0 to 2 name globals as Python 2 did, even those that Python 3 writes, and
// every unpickler of Python 3 translates them. The tables have what data may consist of; Python
// (_compat_pickle) also knows the modules for windows, mail and web servers, which are left as
// they are.

#include "parser/codec/pickle/names.h"

namespace ckptfs::pickle {
namespace {

struct Renamed {
  GlobalNames from;
  GlobalNames to;
};

constexpr Renamed kGlobals[] = {
    {{"__builtin__", "basestring"}, {"builtins", "str"}},
    {{"__builtin__", "intern"}, {"sys", "intern"}},
    {{"__builtin__", "long"}, {"builtins", "int"}},
    {{"__builtin__", "reduce"}, {"functools", "reduce"}},
    {{"__builtin__", "unichr"}, {"builtins", "chr"}},
    {{"__builtin__", "unicode"}, {"builtins", "str"}},
    {{"__builtin__", "xrange"}, {"builtins", "range"}},
    {{"UserDict", "IterableUserDict"}, {"collections", "UserDict"}},
    {{"exceptions", "StandardError"}, {"builtins", "Exception"}},
    {{"itertools", "ifilter"}, {"builtins", "filter"}},
    {{"itertools", "ifilterfalse"}, {"itertools", "filterfalse"}},
    {{"itertools", "imap"}, {"builtins", "map"}},
    {{"itertools", "izip"}, {"builtins", "zip"}},
    {{"itertools", "izip_longest"}, {"itertools", "zip_longest"}},
};

struct RenamedModule {
  std::string_view from;
  std::string_view to;
};

constexpr RenamedModule kModules[] = {
    {"__builtin__", "builtins"},
    {"copy_reg", "copyreg"},
    {"cPickle", "pickle"},
    {"cStringIO", "io"},
    {"exceptions", "builtins"},
    {"ConfigParser", "configparser"},
    {"Queue", "queue"},
    {"StringIO", "io"},
    {"UserDict", "collections"},
    {"UserList", "collections"},
    {"UserString", "collections"},
    {"_abcoll", "collections.abc"},
    {"commands", "subprocess"},
    {"repr", "reprlib"},
    {"thread", "_thread"},
};

}  // namespace

GlobalNames Python3Names(GlobalNames names) {
  for (const Renamed& renamed : kGlobals) {
    if (renamed.from.module == names.module && renamed.from.name == names.name) return renamed.to;
  }
  for (const RenamedModule& renamed : kModules) {
    if (renamed.from == names.module) return {renamed.to, names.name};
  }
  return names;
}

}  // namespace ckptfs::pickle
