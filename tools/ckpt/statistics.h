// Figures of the elements of a tensor: the smallest, the largest, the mean, and what is not finite.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "parser/checkpoint.h"

namespace ckptfs::ckpt {

// An element, without loss. Of complex numbers it is the magnitude.
using Number = std::variant<double, int64_t, uint64_t>;

// Returns the shortest text that is read back as the same number: "0.1", "-3", "nan".
std::string NumberText(const Number& number);

// Returns that text as JSON: null if the number is not finite.
std::string NumberJson(const Number& number);

double ValueOf(const Number& number);

struct Statistics {
  uint64_t count = 0;
  uint64_t nans = 0;  // Of complex numbers, those with a part that is NaN; likewise below.
  uint64_t infinities = 0;
  uint64_t zeros = 0;

  // Of the finite elements; without any, all are 0.
  Number min = 0.0;
  Number max = 0.0;
  double mean = 0;
  double squares = 0;  // The sum of the squares of the distances from the mean.

  uint64_t finite() const { return count - nans - infinities; }

  // The standard deviation of a population, as numpy.std.
  double Deviation() const;

  // Adds those of other elements of the same type.
  void Add(const Statistics& other);
};

// Whether the elements of `tensor` are numbers: neither packed nor of an unknown type.
bool HasNumbers(const Tensor& tensor);

// Returns a sentence about a tensor that has none: "ckpt does not decode IQ2_XXS".
std::string NoNumbersText(const Tensor& tensor);

// Reads elements `begin` to `end` of `tensor`, which has numbers. Quantized elements are the
// integers. Any thread may call this. Throws Error.
Statistics StatisticsOf(const Tensor& tensor, uint64_t begin, uint64_t end);

// Counts the finite elements in `bins` ranges of the same width, from `min` to `max`, which is in
// the last one. Reads the whole tensor. Throws Error.
std::vector<uint64_t> HistogramOf(const Tensor& tensor, double min, double max, size_t bins);

}  // namespace ckptfs::ckpt
