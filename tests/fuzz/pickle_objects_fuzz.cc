// Checkpoints whose pickles are valid, and whose objects are nested, shared, repeated and huge.
//
// Each byte of the fuzzer is a decision: which object comes next, how long a text is, how often
// something is repeated, which earlier object is repeated. The result is a stream of torch.save,
// which is read and laid out as for a mount. The oracle: it is a checkpoint or throws Error, and
// costs no more CPU time and memory than a file of its size may.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "fs/tensordict.h"
#include "parser/base/budget.h"
#include "parser/base/error.h"
#include "parser/checkpoint.h"
#include "parser/io/simple_sources.h"
#include "parser/open.h"

// Functions of the sanitizers, if they are linked.
// NOLINTBEGIN(bugprone-reserved-identifier): they have these names.
extern "C" __attribute__((weak)) int __sanitizer_install_malloc_and_free_hooks(
    void (*on_malloc)(const volatile void*, size_t), void (*on_free)(const volatile void*));
extern "C" __attribute__((weak)) size_t __sanitizer_get_allocated_size(const volatile void* block);
// NOLINTEND(bugprone-reserved-identifier)

namespace {

using namespace std::string_view_literals;

bool IsSanitized() { return __sanitizer_install_malloc_and_free_hooks != nullptr; }

class Decisions {
 public:
  explicit Decisions(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool is_at_end() const { return bytes_.empty(); }

  // A number below `count`, which is 256 at most; 0 at the end.
  size_t Below(size_t count) {
    if (bytes_.empty()) return 0;
    const size_t choice = bytes_.front() % count;
    bytes_ = bytes_.subspan(1);
    return choice;
  }

  bool Maybe() { return Below(2) == 1; }

  // One of a few sizes, from nothing to a lot.
  size_t Size() {
    constexpr size_t kSizes[] = {0, 1, 2, 3, 8, 60, 257, 1000, 1785, 4100, 30'000, 200'000};
    return kSizes[Below(std::size(kSizes))];
  }

 private:
  std::span<const uint8_t> bytes_;
};

// Writes a pickle of protocol 2.
class Generator {
 public:
  explicit Generator(std::span<const uint8_t> bytes) : in_(bytes) {}

  std::string Run() {
    out_ = "\x80\x02}(";
    Text("a");
    Tensor(0);
    while (!in_.is_at_end() && !IsFull()) {
      Key();
      Value(0);
    }
    return out_ + "u.";
  }

 private:
  static constexpr size_t kMost = 900'000;  // Bytes.
  static constexpr int kDeepest = 6;        // Of recursive objects.

  bool IsFull() const { return out_.size() > kMost; }

  template <typename T>
  void Little(T number) {
    out_.append(reinterpret_cast<const char*>(&number), sizeof number);
  }

  void Text(std::string_view text) {
    out_ += 'X';
    Little(static_cast<uint32_t>(text.size()));
    out_ += text;
  }

  void Int(int32_t number) {
    out_ += 'J';
    Little(number);
  }

  void Global(std::string_view module, std::string_view name) {
    out_.append("c").append(module).append("\n").append(name).append("\n");
  }

  // Puts the top of the stack into the memo, so that it can be shared.
  void Share() {
    if (memo_ == 250) return;
    out_ += 'q';
    out_ += static_cast<char>(memo_++);
  }

  // Pushes an earlier object again.
  void Shared() {
    if (memo_ == 0) {
      out_ += 'N';
      return;
    }
    out_ += 'h';
    out_ += static_cast<char>(in_.Below(memo_));
  }

  std::string LongText() {
    constexpr std::string_view kPieces[] = {"x", "\1", "\xc3\xa9", ".", "a.", "/", "~", "0", "\""};
    const std::string_view piece = kPieces[in_.Below(std::size(kPieces))];
    std::string text = std::to_string(in_.Below(256));
    for (size_t left = in_.Size(); left > 0; --left) text += piece;
    return text;
  }

  std::string LongName() {
    return std::string(in_.Size() % 60'000, in_.Maybe() ? 'm' : '\1') +
           std::to_string(in_.Below(8));
  }

  void Key() {
    switch (in_.Below(6)) {
      case 0:
        Shared();
        break;
      case 1:
        Number();
        break;
      case 2:
        out_ += '(';
        Text(LongText());
        Shared();
        out_ += 't';
        break;
      default:
        Text(LongText());
        break;
    }
    if (in_.Maybe()) Share();
  }

  void Number() {
    const size_t size = in_.Size() % 5000;
    switch (in_.Below(4)) {
      case 0:
        out_ += '\x8b';
        Little(static_cast<int32_t>(size));
        out_.append(size, in_.Maybe() ? '\x7f' : '\x9f');
        break;
      case 1:
        out_ += in_.Maybe() ? "L-1" : "L1";
        out_.append(size, '7').append("L\n");
        break;
      case 2:
        out_ += "G\x3f\xf1\x11\x11\x11\x11\x11\x11"sv;
        break;
      default:
        Int(static_cast<int32_t>(in_.Below(256)) - 100);
        break;
    }
  }

  // Calls `write` a generated number of times.
  template <typename Write>
  void Repeat(const Write& write) {
    for (size_t left = in_.Size(); left > 0 && !IsFull(); --left) write();
  }

  void Storage() {
    constexpr std::string_view kClasses[] = {"FloatStorage", "LongStorage", "QInt8Storage",
                                             "UntypedStorage", "BoolStorage"};
    out_ += '(';
    Text("storage");
    Global("torch", kClasses[in_.Below(std::size(kClasses))]);
    if (in_.Below(8) == 7) {
      Shared();
    } else {
      Text(in_.Maybe() ? "0" : "1");
    }
    if (in_.Below(8) == 7) {
      Shared();
    } else {
      Text("cpu");
    }
    Int(in_.Maybe() ? 8 : 64);
    out_ += "tQ";
  }

  void Shape() {
    if (in_.Below(8) == 7) return Shared();
    out_ += '(';
    for (size_t left = in_.Below(66); left > 0; --left) Int(static_cast<int32_t>(in_.Below(3)));
    out_ += 't';
  }

  void Tensor(int depth) {
    // Without more decisions a tensor of tensors would never end.
    constexpr size_t kPlain = 8;
    switch (in_.is_at_end() ? kPlain : in_.Below(9)) {
      case 0:
        Global("torch._utils", "_rebuild_parameter_with_state");
        out_ += '(';
        Tensor(kDeepest);
        out_ += "\x88}";
        Value(depth + 1);
        out_ += "tR";
        break;
      case 1:
        Subclass("m", LongName(), [&] { State(depth + 1); });
        break;
      case 2:
        Subclass("torch.distributed.tensor", "DTensor", [&] { DistributedState(); });
        break;
      case 3:
        Global("torch._utils", "_rebuild_qtensor");
        out_ += '(';
        Storage();
        Int(0);
        Shape();
        Shape();
        out_ += '(';
        Global("torch", "per_channel_affine");
        Tensor(kDeepest);
        Tensor(kDeepest);
        Int(0);
        out_ += "t\x89}tR";
        break;
      case 4:
        Array();
        break;
      case 5:
        Global("torch._utils", "_rebuild_sparse_tensor");
        out_ += '(';
        Global("torch.serialization", "_get_layout");
        out_ += '(';
        Text("torch.sparse_coo");
        out_ += "tR(";
        Shared();
        Shared();
        Shape();
        out_ += "ttR";
        break;
      default:
        Global("torch._utils", in_.Maybe() ? "_rebuild_tensor_v2" : "_rebuild_tensor_v3");
        out_ += '(';
        Storage();
        Int(static_cast<int32_t>(in_.Below(4)));
        Shape();
        Shape();
        out_ += "\x89}";
        if (in_.Maybe()) Global("torch", in_.Maybe() ? "float32" : LongName());
        out_ += "tR";
        break;
    }
  }

  template <typename Write>
  void Subclass(std::string_view module, std::string_view name, const Write& write_state) {
    Global("torch._tensor", "_rebuild_from_type_v2");
    out_ += '(';
    Global("torch._utils", "_rebuild_wrapper_subclass");
    Global(module, name);
    out_ += '(';
    Global(module, name);
    Global("torch", "float32");
    Shape();
    Shape();
    out_ += 't';
    write_state();
    out_ += "tR";
  }

  void DistributedState() {
    const auto object = [&](std::string_view module, std::string_view name, const auto& write) {
      Global(module, name);
      out_ += ")\x81}(";
      write();
      out_ += "ub";
    };
    out_ += "}(";
    Text("_local_tensor");
    Shared();
    Text("_spec");
    object("torch.distributed.tensor._dtensor_spec", "DTensorSpec", [&] {
      Text("mesh");
      object("torch.distributed.device_mesh", "DeviceMesh", [&] {
        Text("mesh");
        Tensor(kDeepest);
        Text("_mesh_dim_names");
        Shared();
      });
      Text("placements");
      out_ += '(';
      Repeat([&] { Shared(); });
      out_ += 't';
    });
    out_ += 'u';
  }

  void Dtype() {
    Global("numpy", "dtype");
    out_ += '(';
    if (in_.Below(4) == 3) {
      Shared();
    } else {
      Text(in_.Maybe() ? "f4" : "M8");
    }
    out_ += "\x89\x88tR(";
    Int(4);
    Text("<");
    out_ += "NNN";
    Int(-1);
    Int(-1);
    Int(0);
    out_ += "(}(";
    Shared();
    out_ += "tttb";
  }

  void Array() {
    if (in_.Below(3) == 2) {
      Global("numpy.core.multiarray", "scalar");
      out_ += '(';
      Dtype();
      Shared();
      out_ += "tR";
      return;
    }
    Global("numpy.core.multiarray", "_reconstruct");
    out_ += '(';
    Global("numpy", "ndarray");
    out_ += '(';
    Int(0);
    out_ += 't';
    Text("b");
    out_ += "tR(";
    Int(1);
    Shape();
    Dtype();
    out_ += '\x89';
    Shared();
    out_ += "tb";
  }

  // A dict, or another state of an object.
  void State(int depth) {
    if (in_.Below(4) == 3) return Value(depth);
    out_ += "}(";
    Repeat([&] {
      Shared();
      Shared();
    });
    Key();
    Value(depth);
    out_ += 'u';
  }

  void Call(int depth) {
    constexpr std::pair<std::string_view, std::string_view> kNames[] = {
        {"torch", "device"},
        {"torch", "Size"},
        {"pathlib", "PosixPath"},
        {"builtins", "getattr"},
        {"builtins", "range"},
        {"builtins", "complex"},
        {"_codecs", "encode"},
        {"builtins", "bytearray"},
        {"collections", "OrderedDict"},
        {"builtins", "frozenset"},
        {"m", "C"},
        {"collections", "deque"}};
    const auto& [module, name] = kNames[in_.Below(std::size(kNames))];
    Global(module, name);
    out_ += '(';
    Repeat([&] { Shared(); });
    if (in_.Maybe()) Value(depth + 1);
    out_ += "tR";
    if (in_.Maybe()) {
      State(depth + 1);
      out_ += 'b';
    }
  }

  void Nested() {
    const size_t levels = in_.Size() % 1100;
    const size_t kind = in_.Below(3);
    const size_t key = memo_ == 0 ? 0 : in_.Below(memo_);
    for (size_t i = 0; i < levels; ++i) {
      out_ += kind == 0 ? "(" : kind == 1 ? "](" : "}";
      if (kind == 2)
        out_ += memo_ == 0 ? std::string("N") : "h" + std::string(1, static_cast<char>(key));
    }
    Shared();
    for (size_t i = 0; i < levels; ++i) out_ += kind == 0 ? 't' : kind == 1 ? 'e' : 's';
  }

  void Value(int depth) {
    if (IsFull() || depth >= kDeepest) return Shared();
    switch (in_.Below(12)) {
      case 0:
      case 1:
        Shared();
        return;
      case 2:
        Text(LongText());
        break;
      case 3:
        Number();
        break;
      case 4:
        out_ += "](";
        Value(depth + 1);
        Repeat([&] { Shared(); });
        out_ += 'e';
        break;
      case 5:
        State(depth + 1);
        break;
      case 6:
        Nested();
        break;
      case 7:
        Global(LongName(), LongName());
        break;
      case 8:
        Global("m", LongName());
        out_ += ')';
        if (in_.Maybe()) {
          Shared();
          out_ += '\x92';
        } else {
          out_ += '\x81';
        }
        State(depth + 1);
        out_ += 'b';
        break;
      case 9:
        Call(depth + 1);
        break;
      default:
        Tensor(depth);
        break;
    }
    Share();
  }

  Decisions in_;
  std::string out_;
  size_t memo_ = 0;  // Objects in it.
};

// The stream that torch.save wrote before 1.6: see parser/format/torch/legacy.cc.
std::string StreamOf(std::string_view pickle) {
  std::string file = "\x80\x02\x8a\x0al\xfc\x9c\x46\xf9\x20\x6a\xa8\x50\x19.\x80\x02M\xe9\x03.";
  file += "\x80\x02}.";
  file += pickle;
  file += "\x80\x02](X\x01\0\0\0000X\x01\0\0\0001e."sv;
  for (int i = 0; i < 2; ++i) {
    file += std::string("\x40\0\0\0\0\0\0\0", 8);
    file += std::string(512, '\2');
  }
  return file;
}

// The allocated memory.
size_t live = 0;
size_t peak = 0;

void CountMalloc(const volatile void* /*block*/, size_t size) {
  live += size;
  if (live > peak && live < SIZE_MAX / 2) peak = live;
}
void CountFree(const volatile void* block) {
  if (block != nullptr) live -= __sanitizer_get_allocated_size(block);
}

size_t KilobytesOf(const char* field) {
  std::ifstream status("/proc/self/status");
  std::string word;
  size_t number = 0;
  while (status >> word && word != field) {
  }
  status >> number;
  return number;
}

class MemoryPeak {
 public:
  MemoryPeak() {
    if (IsSanitized()) {
      static const int installed =
          __sanitizer_install_malloc_and_free_hooks(CountMalloc, CountFree);
      static_cast<void>(installed);
      live = peak = 0;
    } else {
      std::ofstream("/proc/self/clear_refs") << 5;  // Resets the peak.
      before_ = KilobytesOf("VmRSS:");
    }
  }

  size_t bytes() const {
    if (IsSanitized()) return peak;
    const size_t most = KilobytesOf("VmHWM:");
    return (most - std::min(most, before_)) << 10U;
  }

 private:
  size_t before_ = 0;  // KiB.
};

double CpuSeconds() {
  timespec now = {};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void Check(bool is_right, const char* what, double found, double most) {
  if (is_right) return;
  std::fprintf(stderr, "takes %g %s, but may take %g\n", found, what, most);
  std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string file = StreamOf(Generator({data, size}).Run());
  const size_t file_size = file.size();
  const auto source = std::make_shared<ckptfs::MemorySource>(file);
  ckptfs::Budget budget;
  budget.AddFile(file_size, false);

  const MemoryPeak memory;
  const double begin = CpuSeconds();
  try {
    ckptfs::Metered(budget, [&] {
      ckptfs::LayOut(ckptfs::ReadCheckpoint(source, {.budget = &budget}), {});
      return 0;
    });
  } catch (const ckptfs::Error&) {
  }
  const double seconds = CpuSeconds() - begin;

  // The limit for a mount, without the program itself. Sanitizers are slow.
  const double slowness = IsSanitized() ? 20 : 1;
  const double most_seconds = slowness * (file_size < (size_t{64} << 10U) ? 0.3 : 1);
  Check(seconds <= most_seconds, "s", seconds, most_seconds);
  if (!ckptfs::kIsMetered) return 0;
  constexpr size_t kMostBytes = size_t{57} << 20U;
  Check(memory.bytes() <= kMostBytes, "bytes", static_cast<double>(memory.bytes()), kMostBytes);
  return 0;
}
