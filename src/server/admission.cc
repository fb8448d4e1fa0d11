#include "server/admission.h"

#include <algorithm>

namespace fovea::server {

bool Admission::full(int64_t more, bool is_first) const {
  const int64_t kept = is_first ? std::min(limits_.slots, limits_.waiting) : 0;
  return answers_ + more > most() + kept;
}

int64_t Admission::answers_of(const std::string& client) const {
  const auto found = of_client_.find(client);
  return found == of_client_.end() ? 0 : found->second;
}

void Admission::add(const std::string& client, int64_t answers) {
  answers_ += answers;
  const auto at = of_client_.try_emplace(client, 0).first;
  at->second += answers;
  if (at->second == 0) of_client_.erase(at);
}

std::unique_ptr<Admission::Ticket> Admission::arrive(const std::string& client, int engine_waiting,
                                                     Verdict& verdict) {
  const std::lock_guard lock(mutex_);
  const bool is_first = answers_of(client) == 0;
  const bool engine_full = !is_first && engine_waiting > 0 && engine_waiting >= limits_.waiting;
  verdict = full(1, is_first) || engine_full                                ? Verdict::too_many_requests
            : limits_.prompt_tokens > 0 && tokens_ >= limits_.prompt_tokens ? Verdict::too_many_tokens
                                                                            : Verdict::admitted;
  if (verdict != Verdict::admitted) return nullptr;
  add(client, 1);
  return std::unique_ptr<Ticket>(new Ticket(*this, client));
}

int Admission::answers() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(answers_);
}

int Admission::waiting() const {
  const std::lock_guard lock(mutex_);
  return static_cast<int>(std::max<int64_t>(0, answers_ - limits_.slots));
}

Admission::Ticket::~Ticket() {
  const std::lock_guard lock(admission_.mutex_);
  admission_.add(client_, -answers_);
  admission_.tokens_ -= tokens_;
}

Admission::Verdict Admission::Ticket::set_answers(int answers) {
  const std::lock_guard lock(admission_.mutex_);
  if (answers > answers_ && admission_.full(answers - answers_, false)) return Verdict::too_many_requests;
  admission_.add(client_, answers - answers_);
  answers_ = answers;
  return Verdict::admitted;
}

Admission::Verdict Admission::Ticket::set_prompt_tokens(int64_t tokens) {
  const std::lock_guard lock(admission_.mutex_);
  const int64_t limit = admission_.limits_.prompt_tokens;
  // The only waiting request is admitted at any length.
  if (limit > 0 && admission_.tokens_ > 0 && admission_.tokens_ + tokens > limit)
    return Verdict::too_many_tokens;
  admission_.tokens_ += tokens - tokens_;
  tokens_ = tokens;
  return Verdict::admitted;
}

void Admission::Ticket::prompt_done(int64_t tokens) {
  const std::lock_guard lock(admission_.mutex_);
  tokens = std::min(tokens, tokens_);
  admission_.tokens_ -= tokens;
  tokens_ -= tokens;
}

void Admission::Ticket::answer_done() {
  const std::lock_guard lock(admission_.mutex_);
  if (answers_ == 0) return;
  admission_.add(client_, -1);
  --answers_;
}

}  // namespace fovea::server
