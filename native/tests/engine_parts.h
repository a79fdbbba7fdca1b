// A decoder and a sequence without a stream, for tests of the parts of a stream.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "eliza/eliza_inference.h"
#include "engine/pass/sequence.h"
#include "sampling/token_selector.h"
#include "test_model.h"

namespace eliza::test {

class EngineParts : public testing::Test {
protected:
    static Options small_options() {
        Options options;
        options.n_ctx = 1024;
        options.n_slots = 4;
        options.n_threads = 1;
        return options;
    }

    std::vector<llama_token> tokens_of(const std::string & text) { return model->tokenize_inside(text); }

    void read(const std::string & text) {
        const std::vector<llama_token> tokens = tokens_of(text);
        sequence.append_prompt(tokens.data(), tokens.size());
    }

    const std::shared_ptr<Model> model = Model::load(f32_model_path(), {});
    Options options = small_options();
    const std::shared_ptr<Decoder> decoder =
        std::make_shared<Decoder>(model, std::make_shared<ComputeThreads>(options.n_threads), options,
                                  DecoderSettings{{GGML_TYPE_F32, GGML_TYPE_F32}});
    CancelFlag cancelled;
    Sequence sequence{decoder, {}, cancelled};
    StreamCounts & counts = sequence.counts();
    TokenSelector selector{model->vocab(), {}};
};

}  // namespace eliza::test
