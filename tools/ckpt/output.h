// The output of commands: tables for people, CSV and JSON for programs.

#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ckptfs::ckpt {

enum class OutputFormat : uint8_t { kText, kJson, kCsv };

// Writes `text` to standard output. Throws Error.
void Print(std::string_view text);

// Whether standard output is a terminal that shows colours: not if NO_COLOR is set.
bool HasColours();

enum class Align : uint8_t { kLeft, kRight };

// Rows of cells in aligned columns.
class Table {
 public:
  struct Column {
    std::string_view title;  // A literal.
    Align align = Align::kLeft;
  };

  explicit Table(std::vector<Column> columns) : columns_(std::move(columns)) {}

  // Adds a row of as many cells as there are columns.
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

  // Returns the titles and rows as lines. Cells are made printable. With `has_colours` titles are
  // bold.
  std::string Text(bool has_colours) const;

  // Returns them as of RFC 4180, with line feeds.
  std::string Csv() const;

 private:
  std::vector<Column> columns_;
  std::vector<std::vector<std::string>> rows_;
};

// Returns a number of bytes for people: "1.5 GiB".
std::string SizeText(uint64_t bytes);

// Returns a number with commas between thousands: "1,234".
std::string CountText(uint64_t count);

// Returns a shape as Python writes a list: "[2, 3]".
std::string ShapeText(std::span<const uint64_t> shape);

}  // namespace ckptfs::ckpt
