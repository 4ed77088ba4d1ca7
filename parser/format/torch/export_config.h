// The table of tensors in an archive of torch.export, which is JSON:
//
//   {"config": {NAME: {"path_name": "weight_0", "is_param": true, "use_pickle": false,
//                      "tensor_meta": {"dtype": 7, "sizes": [{"as_int": 2}], "strides": [...],
//                                      "storage_offset": {"as_int": 0}, "layout": 7,
//                                      "device": {"type": "cpu"}, "requires_grad": true}}}}

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "parser/base/budget.h"
#include "parser/io/byte_source.h"

namespace ckptfs::torch {

struct ExportedTensor {
  std::string name;
  std::string record;       // Beside the table.
  bool is_pickled = false;  // The record is a file of torch.save; what follows is not told then.
  bool is_parameter = false;
  bool requires_grad = false;
  uint64_t dtype = 0;   // ScalarType of torch._export.serde.schema.
  uint64_t layout = 0;  // Likewise, Layout.
  std::vector<uint64_t> sizes;
  std::vector<uint64_t> strides;  // In elements.
  uint64_t offset = 0;            // In elements.
  std::string device = "cpu";
};

// Gives each tensor of the table `json` to `add`, in its order, and keeps nothing of it. Throws
// Error: EBADMSG for what is no such table, and whatever `add` throws.
void ReadExportConfig(const Extent& json, Budget& budget,
                      const std::function<void(ExportedTensor)>& add);

}  // namespace ckptfs::torch
