// The voice and vision families. Every symbol exists, so that loaders find it, and reports that it is not implemented.

#include "eliza/eliza_voice.h"

#include <string>

#include "abi/boundary.h"

using namespace eliza;

namespace {

int not_implemented(char ** err, const char * family) noexcept {
    return guarded(err, [&]() -> int {
        throw Error(ELIZA_ERR_NOT_IMPLEMENTED,
                    std::string(family) + " is not supported: this library generates text only (see eliza_voice.h)");
    });
}

// For functions that open something.
std::nullptr_t none(char ** err, const char * family) noexcept {
    not_implemented(err, family);
    return nullptr;
}

template <typename T>
void clear(T * out) noexcept {
    write_if_asked(out, T());
}

void clear_text(char * text, size_t cap) noexcept {
    if (text != nullptr && cap > 0) {
        *text = '\0';
    }
}

constexpr const char * tts = "text-to-speech";
constexpr const char * kokoro = "Kokoro text-to-speech";
constexpr const char * asr = "speech recognition";
constexpr const char * vad_family = "voice activity detection";
constexpr const char * wakeword = "wake-word detection";
constexpr const char * speakers = "speaker recognition";
constexpr const char * diarization = "speaker diarization";

}  // namespace

int eliza_inference_tts_stream_supported(void) { return 0; }
int eliza_inference_kokoro_supported(void) { return 0; }
int eliza_inference_asr_timestamps_supported(void) { return 0; }
int eliza_inference_asr_stream_supported(void) { return 0; }
int eliza_inference_vad_supported(void) { return 0; }
int eliza_inference_wakeword_supported(void) { return 0; }
int eliza_inference_speaker_supported(void) { return 0; }
int eliza_inference_diariz_supported(void) { return 0; }
int eliza_inference_vision_supported(void) { return 0; }

EliAsrStream * eliza_inference_asr_stream_open(EliInferenceContext *, int, char ** err) { return none(err, asr); }
EliVad * eliza_inference_vad_open(EliInferenceContext *, int, char ** err) { return none(err, vad_family); }
EliWakeWord * eliza_inference_wakeword_open(EliInferenceContext *, int, const char *, char ** err) {
    return none(err, wakeword);
}
EliSpeaker * eliza_inference_speaker_open(EliInferenceContext *, const char *, char ** err) {
    return none(err, speakers);
}
EliDiariz * eliza_inference_diariz_open(EliInferenceContext *, const char *, char ** err) {
    return none(err, diarization);
}

void eliza_inference_asr_stream_close(EliAsrStream *) {}
void eliza_inference_vad_close(EliVad *) {}
void eliza_inference_wakeword_close(EliWakeWord *) {}
void eliza_inference_speaker_free(float *) {}
void eliza_inference_speaker_close(EliSpeaker *) {}
void eliza_inference_diariz_close(EliDiariz *) {}

int eliza_inference_tts_synthesize(EliInferenceContext *, const char *, size_t, const char *, float *, size_t,
                                   char ** err) {
    return not_implemented(err, tts);
}
int eliza_inference_tts_synthesize_stream(EliInferenceContext *, const char *, size_t, const char *, eliza_tts_chunk_cb,
                                          void *, char ** err) {
    return not_implemented(err, tts);
}
int eliza_inference_cancel_tts(EliInferenceContext *, char **) { return ELIZA_OK; }
int eliza_inference_encode_reference(EliInferenceContext *, const float *, size_t, int, int * K, int * T, int ** tokens,
                                     char ** err) {
    clear(K);
    clear(T);
    clear(tokens);
    return not_implemented(err, "reference voices for text-to-speech");
}
int eliza_inference_kokoro_load(EliInferenceContext *, const char *, const char *, int, char ** err) {
    return not_implemented(err, kokoro);
}
int eliza_inference_kokoro_synthesize(EliInferenceContext *, const char *, size_t, float, float *, size_t,
                                      char ** err) {
    return not_implemented(err, kokoro);
}
int eliza_inference_kokoro_sample_rate(EliInferenceContext *) { return ELIZA_ERR_NOT_IMPLEMENTED; }
int eliza_inference_asr_transcribe(EliInferenceContext *, const float *, size_t, int, char * text, size_t cap,
                                   char ** err) {
    clear_text(text, cap);
    return not_implemented(err, asr);
}
int eliza_inference_asr_transcribe_timed(EliInferenceContext *, const float *, size_t, int, char * text, size_t cap,
                                         int *, int *, size_t * io_n, char ** err) {
    clear_text(text, cap);
    clear(io_n);
    return not_implemented(err, asr);
}
int eliza_inference_asr_stream_feed(EliAsrStream *, const float *, size_t, char ** err) {
    return not_implemented(err, asr);
}
int eliza_inference_asr_stream_partial(EliAsrStream *, char * text, size_t cap, int *, size_t * io_n, char ** err) {
    clear_text(text, cap);
    clear(io_n);
    return not_implemented(err, asr);
}
int eliza_inference_asr_stream_finish(EliAsrStream *, char * text, size_t cap, int *, size_t * io_n, char ** err) {
    clear_text(text, cap);
    clear(io_n);
    return not_implemented(err, asr);
}
int eliza_inference_vad_process(EliVad *, const float *, size_t, float * probability, char ** err) {
    clear(probability);
    return not_implemented(err, vad_family);
}
int eliza_inference_vad_reset(EliVad *, char ** err) { return not_implemented(err, vad_family); }
int eliza_inference_wakeword_score(EliWakeWord *, const float *, size_t, float * probability, char ** err) {
    clear(probability);
    return not_implemented(err, wakeword);
}
int eliza_inference_wakeword_reset(EliWakeWord *, char ** err) { return not_implemented(err, wakeword); }
int eliza_inference_speaker_embed(EliSpeaker *, const float *, size_t, float *, char ** err) {
    return not_implemented(err, speakers);
}
int eliza_inference_diariz_segment(EliDiariz *, const float *, size_t, int8_t *, size_t * io_n, char ** err) {
    clear(io_n);
    return not_implemented(err, diarization);
}
int eliza_inference_describe_image(EliInferenceContext *, const unsigned char *, size_t, const char *, const char *,
                                   char * text, size_t cap, char ** err) {
    clear_text(text, cap);
    return not_implemented(err, "vision");
}
