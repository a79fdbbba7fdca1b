// Structured answers.

#include "abi/boundary.h"

using namespace eliza;

int eliza_inference_llm_fill_supported(void) { return 2; }

int eliza_inference_llm_stream_fill(EliLlmStream * stream, const char * span, size_t len, char ** out, char ** err) {
    return with_stream(stream, err, [&](Stream & s) {
        require(out != nullptr, "out is NULL");
        *out = nullptr;
        const SpanSpec spec = parse_span(require_text(span, len, "span"));
        FillResult result;
        const auto give = [&] {
            s.tell_answer(result);
            *out = new_c_string(to_json(result));
            if (*out == nullptr) {
                throw std::bad_alloc();
            }
        };
        try {
            s.fill(spec, result);
        } catch (...) {
            give();
            throw;
        }
        give();
    });
}
