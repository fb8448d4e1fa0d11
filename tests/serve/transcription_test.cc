// Transcripts with a scripted engine: which windows are heard, with which prompts, and what clients get.
#include <gmock/gmock.h>

#include <cstring>
#include <deque>

#include "audio/log_mel.h"
#include "server/service.h"
#include "tests/serve/fake_exchange.h"
#include "tests/serve/stub_engine.h"

namespace fovea::server {
namespace {

using http::FakeExchange;
using http::FakeLoop;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using Exchange = std::shared_ptr<FakeExchange>;
using Ids = std::vector<int32_t>;

// Two seconds of 1000 Hz are a window: 200 frames, 100 timestamps of 0.02 s.
constexpr int kRate = 1000, kHop = 10;
constexpr int32_t kStart = 130, kTranscribe = 131, kTranslate = 132, kPrevious = 133, kSilence = 134,
                  kEnglish = 140, kGerman = 141, kNoTimes = 149, kTime = 150;

AudioInput whisper() {
  AudioInput audio;
  audio.input = {4, kRate, 40, kHop, 2};
  audio.steps = 100;
  audio.tokens = {kStart,    kTranscribe, kTranslate,
                  kPrevious, kSilence,    kNoTimes,
                  kTime,     128,         {{"en", kEnglish}, {"de", kGerman}}};
  return audio;
}

std::vector<float> sound(double seconds) {
  std::vector<float> samples(static_cast<size_t>(seconds * kRate));
  for (size_t i = 0; i < samples.size(); ++i)
    samples[i] = static_cast<float>(static_cast<int>(i * i % 2001) - 1000) / 32768.0f;
  return samples;
}

std::string wav(const std::vector<float>& samples, uint32_t rate = kRate) {
  std::string data;
  for (const float x : samples) {
    const auto value = static_cast<int16_t>(x * 32768.0f);
    data.append(reinterpret_cast<const char*>(&value), 2);
  }
  const auto number = [](uint32_t value, size_t bytes) {
    return std::string(reinterpret_cast<const char*>(&value), bytes);
  };
  return "RIFF" + number(0, 4) + "WAVEfmt " + number(16, 4) + number(1, 2) + number(1, 2) + number(rate, 4) +
         number(2 * rate, 4) + number(2, 2) + number(16, 2) + "data" +
         number(static_cast<uint32_t>(data.size()), 4) + data;
}

Ids text(std::string_view letters) {
  return {letters.begin(), letters.end()};
}

/// Tokens: texts and times in hundredths of a second.
Ids answer(std::initializer_list<std::variant<int, const char*>> parts) {
  Ids ids;
  for (const auto& part : parts) {
    if (const int* time = std::get_if<int>(&part)) {
      ids.push_back(kTime + *time / 2);
    } else {
      for (const char* c = std::get<const char*>(part); *c != 0; ++c)
        ids.push_back(*c);
    }
  }
  return ids;
}

class TranscriptionTest : public testing::Test {
 protected:
  void SetUp() override { start(); }
  void TearDown() override { stop(); }

  void start() {
    stop();
    StubEngine::Options options;
    options.max_seq_len = 40;
    options.script = [this](const GenerateRequest& request) {
      asked_.push_back(request);
      RequestOutput out;
      if (answers_.empty()) return out;
      out = answers_.front();
      answers_.pop_front();
      for (const int32_t id : out.token_ids)
        if (id < 128) out.text += static_cast<char>(id);
      if (out.logprobs.empty()) out.logprobs.resize(out.token_ids.size(), {{0, -0.25f, 1}, {}});
      return out;
    };
    engine_ = std::make_unique<StubEngine>(options);
    config_.served_names = {"whisper"};
    if (!config_.audio) config_.audio = whisper();
    loop_ = std::make_unique<FakeLoop>();
    service_ = *Service::create(config_, engine_.get(), nullptr);
    service_->set_ready();
    handler_ = service_->handler();
  }
  void stop() {
    if (!service_) return;
    for (const Exchange& exchange : all_)
      EXPECT_FALSE(exchange->misused()) << exchange->request().path;
    all_.clear();
    service_->abort_all();
    loop_->stop();
    handler_ = nullptr;
    service_.reset();
    engine_.reset();
  }

  void answers(const Ids& ids) {
    RequestOutput out;
    out.token_ids = ids;
    answers_.push_back(std::move(out));
  }
  using Fields = std::vector<std::pair<std::string, std::string>>;
  Exchange send(const Fields& fields, const std::string& path = "/v1/audio/transcriptions",
                http::Headers headers = {{"Content-Type", "multipart/form-data; boundary=XX"}}) {
    std::string body;
    for (const auto& [name, value] : fields)
      body += "--XX\r\nContent-Disposition: form-data; name=\"" + name + "\"" +
              (name == "file" ? "; filename=\"a.wav\"" : "") + "\r\n\r\n" + value + "\r\n";
    http::Request request;
    request.method = "POST";
    request.path = path;
    request.body = body + "--XX--\r\n";
    request.headers = std::move(headers);
    request.remote = "192.0.2.1";
    auto exchange = std::make_shared<FakeExchange>(*loop_, std::move(request));
    all_.push_back(exchange);
    handler_(exchange);
    return exchange;
  }
  FakeExchange::Seen post(const Fields& fields, const std::string& path = "/v1/audio/transcriptions") {
    return send(fields, path)->answer();
  }
  std::vector<float> features(const std::vector<float>& samples, double from, double to) {
    const auto at = [&](double seconds) { return static_cast<size_t>(std::lround(seconds * kRate)); };
    return *log_mel(config_.audio->input, std::span(samples).subspan(at(from), at(to) - at(from)));
  }
  bool idle() {
    for (int i = 0; i < 2000; ++i) {
      const EngineStats stats = engine_->stats();
      if (service_->in_flight() == 0 && stats.running == 0 && stats.waiting == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  ServiceConfig config_;
  std::deque<RequestOutput> answers_;
  std::deque<GenerateRequest> asked_;
  std::unique_ptr<StubEngine> engine_;
  std::unique_ptr<FakeLoop> loop_;
  std::unique_ptr<Service> service_;
  http::Handler handler_;
  std::vector<Exchange> all_;
};

MATCHER_P2(IsError, status, text, "") {
  *result_listener << arg.status << " " << arg.body;
  return arg.status == status && arg.body.starts_with("{\"error\":{\"message\":") &&
         arg.body.find(text) != std::string::npos;
}

TEST_F(TranscriptionTest, OneWindowWithoutTimes) {
  answers(text("  hello there "));
  const auto samples = sound(1.5);
  const auto seen = post({{"model", "whisper"}, {"language", "English"}, {"file", wav(samples)}});
  EXPECT_EQ(seen.status, 200) << seen.body;
  EXPECT_EQ(seen.body, R"({"text":"hello there","usage":{"type":"duration","seconds":2}})");
  ASSERT_EQ(asked_.size(), 1u);
  EXPECT_EQ(asked_[0].prompt_ids, (Ids{kStart, kEnglish, kTranscribe, kNoTimes}));
  EXPECT_EQ(asked_[0].encoder_features, features(samples, 0, 1.5));
  EXPECT_EQ(asked_[0].sampling.max_tokens, 20);
  EXPECT_EQ(asked_[0].sampling.temperature, 0);
  EXPECT_FALSE(asked_[0].sampling.timestamps);
  EXPECT_TRUE(idle());
}

TEST_F(TranscriptionTest, TheLanguageIsHeardFirst) {
  answers({kGerman});
  answers(text("hallo"));
  const auto seen = post({{"file", wav(sound(1))}, {"response_format", "text"}, {"prompt", " ein <text> "}});
  EXPECT_EQ(seen.body, "hallo\n");
  EXPECT_EQ(seen.content_type, "text/plain; charset=utf-8");
  ASSERT_EQ(asked_.size(), 2u);
  EXPECT_EQ(asked_[0].prompt_ids, Ids{kStart});
  EXPECT_EQ(asked_[0].sampling.max_tokens, 1);
  EXPECT_EQ(asked_[0].sampling.allowed_token_ids, (Ids{kGerman, kEnglish}));
  Ids prompt = {kPrevious};
  for (const char c : std::string(" ein <text>"))
    prompt.push_back(c);
  prompt.insert(prompt.end(), {kStart, kGerman, kTranscribe, kNoTimes});
  EXPECT_EQ(asked_[1].prompt_ids, prompt);
  EXPECT_EQ(asked_[1].encoder_features, asked_[0].encoder_features);
  EXPECT_EQ(asked_[1].sampling.max_tokens, 20);
}

TEST_F(TranscriptionTest, LongAudioIsHeardFromTheLastPairOn) {
  answers(answer({0, " one", 100, 100, " two", 160, 160, " lo"}));  // the next window begins at 1.6 s
  answers(answer({0, " three", 140}));                              // done: at 3.6 s
  answers(answer({0, " four", 80, 80, " ", 100, 120, " five"}));    // a pair: at 4.6 s
  answers(answer({0, " six"}));
  const auto samples = sound(5);
  const auto seen = post({{"file", wav(samples)},
                          {"language", "en"},
                          {"response_format", "verbose_json"},
                          {"timestamp_granularities[]", "segment"}});
  EXPECT_EQ(seen.status, 200) << seen.body;
  ASSERT_EQ(asked_.size(), 4u);
  EXPECT_EQ(asked_[0].prompt_ids, (Ids{kStart, kEnglish, kTranscribe}));
  EXPECT_EQ(asked_[0].sampling.timestamps, (TimestampRules{kTime, 128, kNoTimes, 50}));
  const double begins[] = {0, 1.6, 3.6, 4.6}, ends[] = {2, 3.6, 5, 5};
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(asked_[i].encoder_features, features(samples, begins[i], ends[i])) << i;
  // The text so far, at most half of the context less one.
  Ids context = {kPrevious};
  const Ids first = answer({0, " one", 100, 100, " two", 160});
  context.insert(context.end(), first.begin(), first.end());
  context.insert(context.end(), {kStart, kEnglish, kTranscribe});
  EXPECT_EQ(asked_[1].prompt_ids, context);
  EXPECT_EQ(asked_[3].prompt_ids.size(), 1u + 19 + 3);
  EXPECT_THAT(seen.body, HasSubstr(R"({"task":"transcribe","language":"english","duration":5.0,)"
                                   R"("text":"one two three four six","segments":[)"));
  EXPECT_THAT(seen.body,
              HasSubstr(R"({"id":0,"seek":0,"start":0.0,"end":1.0,"text":" one","tokens":[150,32,)"));
  EXPECT_THAT(seen.body, HasSubstr(R"({"id":1,"seek":0,"start":1.0,"end":1.6,"text":" two")"));
  EXPECT_THAT(seen.body, HasSubstr(R"({"id":2,"seek":160,"start":1.6,"end":3.0,"text":" three")"));
  EXPECT_THAT(seen.body, HasSubstr(R"({"id":3,"seek":360,"start":3.6,"end":4.4,"text":" four")"));
  EXPECT_THAT(seen.body, HasSubstr(R"({"id":4,"seek":460,"start":4.6,"end":5.0,"text":" six")"));
  EXPECT_THAT(seen.body, HasSubstr(R"("temperature":0.0,"avg_logprob":-0.25,"compression_ratio":null,)"
                                   R"("no_speech_prob":null}],"usage":{"type":"duration","seconds":5}})"));
}

TEST_F(TranscriptionTest, SilenceHasNoText) {
  const auto silent = [&](float silence, float logprob) {
    RequestOutput out;
    out.token_ids = answer({0, " hm", 20});
    out.logprobs.resize(out.token_ids.size(), {{0, logprob, 1}, {}});
    // After <|startoftranscript|>, <|en|> is given and silence is most probable.
    out.prompt_logprobs = {{{kEnglish, -3, 2}, {{kSilence, silence, 1}}}, {{kTranscribe, 0, 1}, {}}};
    answers_.push_back(out);
  };
  silent(-0.1f, -2.0f);
  EXPECT_EQ(post({{"file", wav(sound(2))}, {"language", "en"}, {"response_format", "srt"}}).body, "");
  EXPECT_EQ(asked_[0].prompt_logprobs, 1);
  silent(-0.6f, -2.0f);  // not probable enough
  EXPECT_THAT(post({{"file", wav(sound(2))}, {"language", "en"}, {"response_format", "srt"}}).body,
              HasSubstr("hm"));
  silent(-0.1f, -0.5f);  // the text is probable
  const auto seen = post({{"file", wav(sound(2))}, {"language", "en"}, {"response_format", "verbose_json"}});
  EXPECT_THAT(seen.body, HasSubstr("\"no_speech_prob\":0.904"));
}

TEST_F(TranscriptionTest, Subtitles) {
  answers(answer({0, " one --> two", 150}));
  EXPECT_EQ(post({{"file", wav(sound(2))}, {"language", "en"}, {"response_format", "srt"}}).body,
            "1\n00:00:00,000 --> 00:00:01,500\none -> two\n\n");
  answers(answer({4, "x", 150}));
  const auto seen = post({{"file", wav(sound(2))}, {"language", "en"}, {"response_format", "vtt"}});
  EXPECT_EQ(seen.body, "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nx\n\n");
  EXPECT_EQ(seen.content_type, "text/vtt; charset=utf-8");
}

TEST_F(TranscriptionTest, TranslationsAreEnglish) {
  answers(answer({0, " hi", 100}));
  const auto seen = post({{"file", wav(sound(1))}, {"language", "de"}, {"response_format", "verbose_json"}},
                         "/v1/audio/translations");
  EXPECT_EQ(asked_[0].prompt_ids, (Ids{kStart, kGerman, kTranslate}));
  EXPECT_THAT(seen.body, HasSubstr(R"({"task":"translate","language":"english")"));
}

TEST_F(TranscriptionTest, Streams) {
  answers(answer({0, " one", 100, 100, " two ", 160, 160, " lo"}));
  answers(answer({0, " three ", 40}));
  const auto seen = post({{"file", wav(sound(3))}, {"language", "en"}, {"stream", "true"}});
  EXPECT_EQ(seen.content_type, "text/event-stream");
  const std::string start = R"(data: {"type":"transcript.text.delta","delta":")";
  EXPECT_EQ(seen.body, start + "one\"}\n\n" + start + " two\"}\n\n" + start + "  three\"}\n\n" +
                           R"(data: {"type":"transcript.text.done","text":"one two  three",)" +
                           R"("usage":{"type":"duration","seconds":3}})" + "\n\ndata: [DONE]\n\n");
  EXPECT_TRUE(idle());
}

TEST_F(TranscriptionTest, EndsWithItsClientAndWithTheService) {
  engine_->pause(true);
  const Exchange gone = send({{"file", wav(sound(9))}, {"language", "en"}});
  const Exchange stays = send({{"file", wav(sound(9))}, {"language", "en"}, {"stream", "true"}});
  for (int i = 0; i < 2000 && engine_->submitted() < 2; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(engine_->submitted(), 2);
  gone->hang_up();
  for (int i = 0; i < 2000 && service_->in_flight() > 1; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  service_->abort_all();
  EXPECT_THAT(stays->answer(), IsError(503, "shutting down"));
  engine_->pause(false);
  EXPECT_TRUE(idle());
  EXPECT_EQ(engine_->submitted(), 2) << "no further window is heard";
}

TEST_F(TranscriptionTest, TheEnginesFailureIsNotShown) {
  config_.audio->tokens.start = 0;  // the stub fails
  start();
  const auto seen = post({{"file", wav(sound(1))}, {"language", "en"}, {"response_format", "srt"}});
  EXPECT_THAT(seen, IsError(500, "failed to compute"));
  EXPECT_THAT(seen.body, Not(HasSubstr("secret")));
}

TEST_F(TranscriptionTest, WithoutWhispersTokens) {
  config_.audio->tokens = {};
  config_.audio->decoder_prompt = {7, 8};
  start();
  answers(text("x"));
  EXPECT_EQ(post({{"file", wav(sound(1))}, {"response_format", "text"}}).body, "x\n");
  EXPECT_EQ(asked_[0].prompt_ids, (Ids{7, 8}));
  EXPECT_THAT(post({{"file", wav(sound(1))}, {"response_format", "srt"}}),
              IsError(400, "no timestamp tokens"));
  EXPECT_THAT(post({{"file", wav(sound(3))}}), IsError(400, "at most 2 seconds"));
  EXPECT_THAT(post({{"file", wav(sound(1))}, {"prompt", "x"}}), IsError(400, "startofprev"));
  EXPECT_THAT(post({{"file", wav(sound(1))}, {"language", "de"}}), IsError(400, "knows English alone"));
  EXPECT_THAT(post({{"file", wav(sound(1))}}, "/v1/audio/translations"), IsError(400, "does not translate"));
}

TEST_F(TranscriptionTest, RefusalsNameTheField) {
  const std::string file = wav(sound(1));
  const auto refused = [&](Fields fields, const char* why, const char* param) {
    const auto seen = post(fields);
    EXPECT_THAT(seen, IsError(400, why));
    EXPECT_THAT(seen.body, HasSubstr("\"param\":\"" + std::string(param) + "\""));
  };
  refused({{"model", "whisper"}}, "file is missing", "file");
  refused({{"file", ""}}, "not a WAV file", "file");
  refused({{"file", "ID3\x03"}}, "not a WAV file (RIFF ... WAVE) but MP3", "file");
  refused({{"file", file.substr(0, 60)}}, "was it cut off?", "file");
  refused({{"file", wav({})}}, "no samples", "file");
  refused({{"file", wav(sound(1), 7999)}}, "7999 Hz can't be converted to 1000 Hz", "file");
  refused({{"file", file}, {"file", file}}, "given twice", "file");
  refused({{"file", file}, {"language", "xx"}}, "language is", "language");
  refused({{"file", file}, {"language", "fr"}}, "does not know it", "language");
  refused({{"file", file}, {"response_format", "xml"}}, "response_format is", "response_format");
  refused({{"file", file}, {"response_format", "diarized_json"}}, "response_format is", "response_format");
  refused({{"file", file}, {"temperature", "1.5"}}, "0 to 1", "temperature");
  refused({{"file", file}, {"temperature", "nan"}}, "0 to 1", "temperature");
  refused({{"file", file}, {"seed", "-1"}}, "0 or more", "seed");
  refused({{"file", file}, {"stream", "yes"}}, "true or false", "stream");
  refused({{"file", file}, {"stream", "true"}, {"response_format", "srt"}}, "no times", "stream");
  refused({{"file", file}, {"response_format", "verbose_json"}, {"timestamp_granularities[]", "word"}},
          "times of segments", "timestamp_granularities");
  refused({{"file", file}, {"timestamp_granularities[]", "segment"}}, "verbose_json",
          "timestamp_granularities");
  refused({{"file", file}, {"prompt", std::string(70'000, 'x')}}, "at most 65536", "prompt");
  refused({{"file", file}, {"prompt", "\xff"}}, "not UTF-8", "prompt");
  refused({{"file", file}, {"chunking_strategy", "server_vad"}}, "chunking_strategy is", "chunking_strategy");
  refused({{"file", file}, {"langauge", "en"}}, "language", "langauge");
  EXPECT_THAT(post({{"file", file}, {"model", "other"}}), IsError(404, "does not exist"));
  EXPECT_THAT(
      send({{"file", file}}, "/v1/audio/transcriptions", {{"Content-Type", "application/json"}})->answer(),
      IsError(415, "must be a form"));
  EXPECT_THAT(
      send({{"file", file}}, "/v1/audio/transcriptions", {{"Content-Type", "multipart/form-data"}})->answer(),
      IsError(400, "no boundary"));
  EXPECT_THAT(
      send({{"file", file}}, "/v1/audio/transcriptions",
           {{"Content-Type", "multipart/form-data; boundary=XX"}, {"Host", "a"}, {"Origin", "http://b"}})
          ->answer(),
      IsError(403, "Origin"));
  EXPECT_TRUE(asked_.empty());
  answers(text("x"));
  EXPECT_EQ(
      send({{"file", file}, {"language", "en"}}, "/v1/audio/transcriptions",
           {{"Content-Type", "multipart/form-data; boundary=XX"}, {"Host", "a:1"}, {"Origin", "http://a:1"}})
          ->answer()
          .status,
      200);
  // Texts.
  http::Request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers = {{"Content-Type", "application/json"}};
  request.body = R"({"prompt": "x"})";
  auto exchange = std::make_shared<FakeExchange>(*loop_, std::move(request));
  handler_(exchange);
  EXPECT_THAT(exchange->answer(), IsError(400, "takes audio, not text"));
  EXPECT_TRUE(idle());
}

}  // namespace
}  // namespace fovea::server
