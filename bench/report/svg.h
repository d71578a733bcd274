#ifndef RONDA_BENCH_REPORT_SVG_H_
#define RONDA_BENCH_REPORT_SVG_H_

#include <string>

#include "bench/report/figure.h"

namespace ronda::bench {

// The figure as an <svg> element: for an HTML page, or, as it is, a file.
std::string SvgOf(const Figure& figure);

// `text` for HTML and XML.
std::string Escaped(const std::string& text);

}  // namespace ronda::bench

#endif  // RONDA_BENCH_REPORT_SVG_H_
