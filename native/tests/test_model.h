// The model the native tests run: the project's own small one.
#pragma once

#include <cstdlib>
#include <memory>
#include <string>

#include "engine/model.h"

namespace eliza::test {

inline std::string model_path() {
    const char * path = std::getenv("ELIZA_TEST_MODEL");
    return path != nullptr ? path : ELIZA_TEST_MODEL;
}

inline std::shared_ptr<Model> load_model() { return Model::load(model_path(), 0, true, {}); }

}  // namespace eliza::test
