// SPDX-License-Identifier: Apache-2.0

#include "programs/monitor/serve/page.h"

#include <openssl/sha.h>

#include <array>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "programs/monitor/serve/page_html.h"

namespace ronda {
namespace {

// Returns the text between <tag> and </tag>. The page must have each of these tags once.
absl::string_view Between(absl::string_view tag, absl::string_view html) {
  const std::string begin = absl::StrCat("<", tag, ">"), end = absl::StrCat("</", tag, ">");
  const size_t from = html.find(begin) + begin.size();
  return html.substr(from, html.find(end) - from);
}

// Returns the hash by which a Content-Security-Policy identifies a script or style as an allowed source.
std::string SourceOf(absl::string_view text) {
  std::array<unsigned char, SHA256_DIGEST_LENGTH> digest;
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  const absl::string_view bytes(reinterpret_cast<const char*>(digest.data()), digest.size());
  return absl::StrCat("'sha256-", absl::Base64Escape(bytes), "'");
}

}  // namespace

Page MakeJobsPage() {
  const absl::string_view html(kPageHtml, sizeof(kPageHtml) - 1);
  return {.type = "text/html; charset=utf-8",
          .body = std::string(html),
          .policy = absl::StrCat("default-src 'none'; connect-src 'self'; script-src ",
                                 SourceOf(Between("script", html)), "; style-src ", SourceOf(Between("style", html)),
                                 "; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")};
}

}  // namespace ronda
