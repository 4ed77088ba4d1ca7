// A model, of which a part may be lost without the others.

#pragma once

#include <functional>
#include <memory>

#include "parser/io/byte_source.h"
#include "parser/io/remote_object.h"
#include "parser/source/redis/object.h"

namespace ckptfs::redis {

// Makes a source of `object` by means of `cached`, as SourceOptions has it. What is fetched at once
// is more than what is read, so a part that is lost takes its neighbours with it: where that has
// happened, each part is an object of its own.
ByteSourcePtr MakePartsSource(std::shared_ptr<const Object> object,
                              std::function<ByteSourcePtr(RemoteObjectPtr)> cached);

}  // namespace ckptfs::redis
