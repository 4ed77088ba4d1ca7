#include "tools/ckpt/output.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "parser/base/error.h"

namespace ckptfs::ckpt {
namespace {

// The number of characters, which is how wide a terminal shows most texts.
size_t WidthOf(std::string_view text) {
  const auto begins_character = [](char c) { return (static_cast<uint8_t>(c) & 0xC0U) != 0x80; };
  return static_cast<size_t>(std::ranges::count_if(text, begins_character));
}

void AppendCell(std::string& line, std::string_view cell, Align align, size_t width) {
  const std::string space(width - std::min(width, WidthOf(cell)), ' ');
  if (align == Align::kRight) line += space;
  line += cell;
  if (align == Align::kLeft) line += space;
}

std::string CsvCell(std::string_view cell) {
  if (cell.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(cell);
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += c;
    quoted += c;
  }
  return quoted + '"';
}

}  // namespace

void Print(std::string_view text) {
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0) {
    FailErrno("cannot write to standard output");
  }
}

bool HasColours() {
  const char* const no_color = std::getenv("NO_COLOR");
  return ::isatty(STDOUT_FILENO) != 0 && (no_color == nullptr || *no_color == '\0');
}

std::string Table::Text(bool has_colours) const {
  std::vector<std::vector<std::string>> lines(1);
  for (const Column& column : columns_) lines[0].emplace_back(column.title);
  for (const auto& row : rows_) {
    auto& line = lines.emplace_back();
    for (const std::string& cell : row) line.push_back(Printable(cell));
  }
  std::vector<size_t> widths(columns_.size());
  for (const auto& line : lines) {
    for (size_t i = 0; i < widths.size(); ++i) widths[i] = std::max(widths[i], WidthOf(line[i]));
  }
  std::string text;
  for (size_t n = 0; n < lines.size(); ++n) {
    std::string line;
    for (size_t i = 0; i < widths.size(); ++i) {
      if (i > 0) line += "  ";
      AppendCell(line, lines[n][i], columns_[i].align, widths[i]);
    }
    line.resize(line.find_last_not_of(' ') + 1);
    const bool is_bold = n == 0 && has_colours;
    text += is_bold ? "\x1b[1m" + line + "\x1b[0m" : line;
    text += '\n';
  }
  return text;
}

std::string Table::Csv() const {
  std::string text;
  for (size_t i = 0; i < columns_.size(); ++i) {
    text += i > 0 ? "," : "";
    text += columns_[i].title;
  }
  text += '\n';
  for (const auto& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      if (i > 0) text += ',';
      text += CsvCell(row[i]);
    }
    text += '\n';
  }
  return text;
}

std::string SizeText(uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"KiB", "MiB", "GiB", "TiB", "PiB"};
  constexpr double kStep = 1024;
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double size = static_cast<double>(bytes) / kStep;
  size_t unit = 0;
  while (size >= kStep && unit + 1 < kUnits.size()) {
    size /= kStep;
    ++unit;
  }
  return fmt::format("{:.1f} {}", size, kUnits.at(unit));
}

std::string CountText(uint64_t count) {
  std::string text = fmt::to_string(count);
  for (size_t i = text.size(); i > 3; i -= 3) text.insert(i - 3, 1, ',');
  return text;
}

std::string ShapeText(std::span<const uint64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace ckptfs::ckpt
