// SPDX-License-Identifier: Apache-2.0
// What a program (C11) may ask of the ggml plug-in while it runs. The plug-in exports none of it; ggml hands it out:
//
//   ggml_backend_reg_t reg = ggml_backend_reg_by_name("RouteRelay");  // NULL: the plug-in is not loaded
//   rr_plugin_report_fn report = (rr_plugin_report_fn)ggml_backend_reg_get_proc_address(reg, RR_PLUGIN_REPORT);
//
// Any thread may call what it gets. No call prints or lets an exception through.
#ifndef ROUTERELAY_PLUGIN_H
#define ROUTERELAY_PLUGIN_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

// The report so far, what ROUTERELAY_REPORT writes: one JSON object, in at most `size` bytes with the ending zero.
// Returns its length without that zero: where this is `size` or more, the text is cut. 0: no memory for it.
#define RR_PLUGIN_REPORT "routerelay_report"
typedef size_t (*rr_plugin_report_fn)(char* text, size_t size);

// Preset (never null) and options ("key=value;key=value"; null: none) of every micro-batch that begins from now on, in
// every context; until then ROUTERELAY_PRESET and ROUTERELAY_OPTIONS count, and nothing of them after it. Returns 0, or
// 1 with nothing changed and what is wrong in `error`, in at most `error_size` bytes with the ending zero. 'off' is no
// preset here: what is loaded stays loaded, and 'exact' answers as the host would.
#define RR_PLUGIN_USE "routerelay_use"
typedef int (*rr_plugin_use_fn)(const char* preset, const char* options, char* error, size_t error_size);

#ifdef __cplusplus
}
#endif

#endif
