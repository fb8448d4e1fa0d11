// Regular expressions of JSON Schema's formats: RFC 3339, 3986, 4122, 5321, 1123, 6570 and 6901, and of
// OpenAPI's.
#include <utility>

#include "grammar/json_text.h"

namespace fovea::grammar {

std::string_view format_pattern(std::string_view format) {
#define FOVEA_DATE                                                                                     \
  "(([0-9]{4}-(0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01]))|([0-9]{4}-(0[469]|11)-(0[1-9]|[12][0-9]|30))" \
  "|([0-9]{4}-02-(0[1-9]|1[0-9]|2[0-8]))|"                                                             \
  "(([0-9]{2}(0[48]|[2468][048]|[13579][26])|([02468][048]|[13579][26])00)-02-29))"
#define FOVEA_TIME "([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\\.[0-9]+)?"
#define FOVEA_OFFSET "([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
#define FOVEA_LABEL "[A-Za-z0-9]([A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
#define FOVEA_BYTE "(25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
#define FOVEA_IPV4 FOVEA_BYTE "(\\." FOVEA_BYTE "){3}"
#define FOVEA_HEX "[0-9A-Fa-f]"
#define FOVEA_H16 "[0-9A-Fa-f]{1,4}"
#define FOVEA_LS32 "(" FOVEA_H16 ":" FOVEA_H16 "|" FOVEA_IPV4 ")"
#define FOVEA_IPV6                                                                                          \
  "((" FOVEA_H16 ":){6}" FOVEA_LS32 "|::(" FOVEA_H16 ":){5}" FOVEA_LS32 "|(" FOVEA_H16 ")?::(" FOVEA_H16    \
  ":){4}" FOVEA_LS32 "|((" FOVEA_H16 ":){0,1}" FOVEA_H16 ")?::(" FOVEA_H16 ":){3}" FOVEA_LS32               \
  "|((" FOVEA_H16 ":){0,2}" FOVEA_H16 ")?::(" FOVEA_H16 ":){2}" FOVEA_LS32 "|((" FOVEA_H16                  \
  ":){0,3}" FOVEA_H16 ")?::" FOVEA_H16 ":" FOVEA_LS32 "|((" FOVEA_H16 ":){0,4}" FOVEA_H16 ")?::" FOVEA_LS32 \
  "|((" FOVEA_H16 ":){0,5}" FOVEA_H16 ")?::" FOVEA_H16 "|((" FOVEA_H16 ":){0,6}" FOVEA_H16 ")?::)"
#define FOVEA_PCT "%" FOVEA_HEX FOVEA_HEX
#define FOVEA_PCHAR "([A-Za-z0-9._~!$&'()*+,;=:@-]|" FOVEA_PCT ")"
#define FOVEA_AUTHORITY                                             \
  "(([A-Za-z0-9._~!$&'()*+,;=:-]|" FOVEA_PCT ")*@)?(\\[" FOVEA_IPV6 \
  "\\]|([A-Za-z0-9._~!$&'()*+,;=-]|" FOVEA_PCT ")*)(:[0-9]*)?"
#define FOVEA_TAIL "(\\?(" FOVEA_PCHAR "|[/?])*)?(#(" FOVEA_PCHAR "|[/?])*)?"
#define FOVEA_HIER                                                                                   \
  "(//" FOVEA_AUTHORITY "(/" FOVEA_PCHAR "*)*|/(" FOVEA_PCHAR "+(/" FOVEA_PCHAR "*)*)?|" FOVEA_PCHAR \
  "+(/" FOVEA_PCHAR "*)*|)"
#define FOVEA_NAME_CHAR "([A-Za-z0-9_]|" FOVEA_PCT ")"
#define FOVEA_VARIABLE FOVEA_NAME_CHAR "(\\.?" FOVEA_NAME_CHAR ")*(:[1-9][0-9]{0,3}|\\*)?"
  struct Format {
    std::string_view name, pattern;
  };
  static constexpr Format kFormats[] = {
      {"date", FOVEA_DATE},
      {"time", FOVEA_TIME FOVEA_OFFSET},
      {"date-time", FOVEA_DATE "[Tt]" FOVEA_TIME FOVEA_OFFSET},
      {"duration",
       "P([0-9]+W|((([0-9]+Y([0-9]+M([0-9]+D)?)?|[0-9]+M([0-9]+D)?|[0-9]+D)"
       "(T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S))?)|"
       "T([0-9]+H([0-9]+M([0-9]+S)?)?|[0-9]+M([0-9]+S)?|[0-9]+S)))"},
      {"email", "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+(\\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+)*@" FOVEA_LABEL
                "(\\." FOVEA_LABEL ")*"},
      // At most 253 characters, and no label with -- in places 3 and 4, as encoded Unicode has it.
      {"hostname", "(?!.{254})(?!(.*\\.)?[A-Za-z0-9-]{2}--)" FOVEA_LABEL "(\\." FOVEA_LABEL ")*"},
      {"ipv4", FOVEA_IPV4},
      {"ipv6", FOVEA_IPV6},
      {"uuid", FOVEA_HEX "{8}-" FOVEA_HEX "{4}-" FOVEA_HEX "{4}-" FOVEA_HEX "{4}-" FOVEA_HEX "{12}"},
      {"uri", "[A-Za-z][A-Za-z0-9+.-]*:" FOVEA_HIER FOVEA_TAIL},
      {"uri-reference", "([A-Za-z][A-Za-z0-9+.-]*:" FOVEA_HIER "|//" FOVEA_AUTHORITY "(/" FOVEA_PCHAR
                        "*)*|/(" FOVEA_PCHAR "+(/" FOVEA_PCHAR "*)*)?|([A-Za-z0-9._~!$&'()*+,;=@-]|" FOVEA_PCT
                        ")+(/" FOVEA_PCHAR "*)*|)" FOVEA_TAIL},
      {"uri-template",
       "([!#$&-;=?-\\[\\]_a-z~\\u00a0-\\ud7ff\\uf900-\\ufdcf\\ufdf0-\\uffef\\u{10000}-\\u{10fffd}]|" FOVEA_PCT
       "|\\{[+#./;?&=,!@|]?" FOVEA_VARIABLE "(," FOVEA_VARIABLE ")*\\})*"},
      {"byte", "([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"},
      {"json-pointer", "(/([^~/]|~[01])*)*"},
      {"relative-json-pointer", "(0|[1-9][0-9]*)(#|(/([^~/]|~[01])*)*)"},
  };
  for (const Format& known : kFormats)
    if (known.name == format) return known.pattern;
  return {};
}

std::optional<NumberFormat> number_format(std::string_view format) {
  static constexpr std::pair<std::string_view, NumberFormat> kFormats[] = {
      {"int8", {true, "-128", "127"}},
      {"int16", {true, "-32768", "32767"}},
      {"int32", {true, "-2147483648", "2147483647"}},
      {"int64", {true, "-9223372036854775808", "9223372036854775807"}},
      {"int", {true, "-9223372036854775808", "9223372036854775807"}},
      {"uint8", {true, "0", "255"}},
      {"uint16", {true, "0", "65535"}},
      {"uint32", {true, "0", "4294967295"}},
      {"uint64", {true, "0", "18446744073709551615"}},
      {"uint", {true, "0", "18446744073709551615"}},
      {"float", {false, "", ""}},
      {"double", {false, "", ""}},
  };
  for (const auto& [name, value] : kFormats)
    if (name == format) return value;
  return std::nullopt;
}

}  // namespace fovea::grammar
