// The byte trie, its recognizers and masks, over any vocabulary. The Python tests compare them with simple
// implementations, and the benchmark of masks measures them.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "constraint/text_choices_constraint.h"
#include "constraint/text_constraints.h"
#include "engine/answer/span_spec.h"
#include "error.h"

#define ELIZA_TEST_API extern "C" __attribute__((visibility("default")))

using namespace eliza;

namespace {

int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

thread_local std::string last_error;

// Runs `body`. On failure returns -1 and sets the text of eliza_test_last_error().
template <typename Body>
int64_t guarded(const Body & body) {
    try {
        return body();
    } catch (const std::exception & error) {
        last_error = error.what();
        return -1;
    }
}

struct TestVocabulary {
    std::shared_ptr<const Vocabulary> tries;
    std::unique_ptr<TextConstraints> constraints;
};

// One interface for both kinds of constraint.
struct Walk {
    std::shared_ptr<const Vocabulary> tries;
    std::unique_ptr<TextConstraint> text;
    std::unique_ptr<TextChoicesConstraint> choices;
};

}  // namespace

ELIZA_TEST_API const char * eliza_test_last_error() { return last_error.c_str(); }

// `texts` contains the bytes of all tokens one after another; token i ends at ends[i].
ELIZA_TEST_API void * eliza_test_vocabulary(const char * texts, const uint64_t * ends, size_t n, int64_t * build_ns) {
    TestVocabulary * vocabulary = nullptr;
    guarded([&] {
        std::vector<std::string_view> views(n);
        size_t begin = 0;
        for (size_t i = 0; i < n; begin = ends[i++]) {
            views[i] = std::string_view(texts + begin, ends[i] - begin);
        }
        const int64_t start = now_ns();
        auto tries = std::make_shared<const Vocabulary>(ByteTrie(views));
        *build_ns = now_ns() - start;
        vocabulary = new TestVocabulary{tries, std::make_unique<TextConstraints>(tries)};
        return 0;
    });
    return vocabulary;
}
ELIZA_TEST_API void eliza_test_vocabulary_free(void * vocabulary) { delete static_cast<TestVocabulary *>(vocabulary); }
ELIZA_TEST_API int64_t eliza_test_vocabulary_nodes(void * vocabulary) {
    return static_cast<int64_t>(static_cast<TestVocabulary *>(vocabulary)->tries->all().nodes().size());
}

// `span` is the JSON of eliza_inference_llm_stream_fill: "before", "after" and "choices", "json" or "dfa".
ELIZA_TEST_API void * eliza_test_walk(void * vocabulary, const char * span, size_t len) {
    Walk * walk = nullptr;
    guarded([&] {
        auto & v = *static_cast<TestVocabulary *>(vocabulary);
        const SpanSpec spec = parse_span({span, len});
        auto made = std::make_unique<Walk>();
        made->tries = v.tries;
        if (spec.kind == SpanSpec::Kind::choices) {
            made->choices = std::make_unique<TextChoicesConstraint>(
                std::make_shared<const TextChoices>(v.tries, spec.before, spec.choices), std::vector<Token>{});
        } else {
            made->text = v.constraints->value(spec.value, {spec.before, spec.after})->begin();
        }
        walk = made.release();
        return 0;
    });
    return walk;
}
ELIZA_TEST_API void eliza_test_walk_free(void * walk) { delete static_cast<Walk *>(walk); }

// Writes the allowed next tokens in ascending order. Returns their number, or -1.
ELIZA_TEST_API int64_t eliza_test_walk_allowed(void * walk, int32_t * out, size_t cap) {
    return guarded([&] {
        auto & w = *static_cast<Walk *>(walk);
        std::vector<Token> tokens;
        if (w.choices != nullptr) {
            tokens.assign(w.choices->allowed().begin(), w.choices->allowed().end());
        } else {
            tokens = w.text->mask()->tokens.tokens();
        }
        if (tokens.size() > cap) {
            throw invalid_argument("cap is too small");
        }
        std::copy(tokens.begin(), tokens.end(), out);
        return static_cast<int64_t>(tokens.size());
    });
}
ELIZA_TEST_API int eliza_test_walk_allows(void * walk, int32_t token) {
    return static_cast<Walk *>(walk)->text->allows(token) ? 1 : 0;
}
ELIZA_TEST_API void eliza_test_walk_accept(void * walk, int32_t token) {
    auto & w = *static_cast<Walk *>(walk);
    w.choices != nullptr ? w.choices->accept(token) : w.text->accept(token);
}
ELIZA_TEST_API int eliza_test_walk_may_end(void * walk) { return static_cast<Walk *>(walk)->text->may_end() ? 1 : 0; }
