"""The style sheet of the page: one file, light and dark, readable on a phone."""

STYLE = """
:root {
  color-scheme: light dark;
  --back: #ffffff; --raised: #f4f5f7; --text: #1b1f24; --soft: #59636e; --line: #d1d9e0;
  --link: #0b57a4; --up: #14702f; --down: #b3261e; --warn: #7d4e00; --warn-back: #fff6dd;
}
@media (prefers-color-scheme: dark) {
  :root {
    --back: #14171b; --raised: #1d2228; --text: #e6eaef; --soft: #9aa6b2; --line: #38414b;
    --link: #7ab7ff; --up: #6fd08c; --down: #ff9d94; --warn: #f2c96d; --warn-back: #2c2614;
  }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body {
  margin: 0 auto; padding: 1rem; max-width: 90rem; background: var(--back); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere;
}
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0.5rem 0 1rem; }
h2 { font-size: 1.15rem; line-height: 1.3; margin: 2.5rem 0 0.5rem; }
h2 a { color: inherit; text-decoration: none; }
h2 a:hover, h2 a:focus { text-decoration: underline; }
a { color: var(--link); }
p { margin: 0.5rem 0; max-width: 75ch; }
.summary { background: var(--raised); border: 1px solid var(--line); border-radius: 0.5rem; padding: 0.5rem 1rem; }
.scale { border-left: 0.25rem solid var(--warn); background: var(--warn-back); padding: 0.25rem 1rem; margin: 1rem 0; }
nav ul { columns: 20rem; column-gap: 2rem; padding-left: 1.2rem; margin: 0.5rem 0; }
nav li { break-inside: avoid; padding: 0.2rem 0; }
sup { line-height: 0; }
.head { color: var(--soft); font-size: 0.875rem; }
.scroll { overflow-x: auto; border: 1px solid var(--line); border-radius: 0.5rem; }
.scroll:focus { outline: 2px solid var(--link); outline-offset: 1px; }
table { border-collapse: collapse; width: 100%; font-size: 0.9rem; font-variant-numeric: tabular-nums; }
th, td { padding: 0.4rem 0.5rem; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line); }
tbody tr:last-child > * { border-bottom: 0; }
td { white-space: nowrap; overflow-wrap: normal; }
thead > tr > * { background: var(--raised); }
.label, .dataframe th:first-child {
  position: sticky; left: 0; background: var(--raised); min-width: 7rem; max-width: 14rem; font-weight: 600;
  overflow-wrap: break-word; border-right: 1px solid var(--line);
}
.ours { font-weight: 650; font-size: 1rem; }
.paper, .spread, .word, sup { color: var(--soft); }
.paper { font-size: 0.8rem; }
.paper b { color: var(--text); }
.up { color: var(--up); }
.down { color: var(--down); }
abbr { text-decoration: none; }
tr.cited .label, td.cited { font-weight: 400; font-style: italic; color: var(--soft); }
td.cited { background: repeating-linear-gradient(135deg, transparent 0 6px, var(--raised) 6px 12px); }
tr.control .label { font-weight: 400; }
td.pending .word, td.missing .word { font-style: italic; }
td.pending, td.missing { border-left: 3px dotted var(--line); }
td.failed .word, td.partial .word { color: var(--down); }
.notes, .gaps, .warnings { font-size: 0.85rem; color: var(--soft); padding-left: 1.5rem; margin: 0.5rem 0; }
.warnings { color: var(--warn); }
.legend { font-size: 0.875rem; color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; font-size: 0.8rem; background: var(--raised); padding: 0.75rem;
  border: 1px solid var(--line); border-radius: 0.5rem; }
img, svg { max-width: 100%; height: auto; }
@media (max-width: 40rem) {
  body { padding: 0.75rem; }
  .label { max-width: 8.5rem; }
}
@media print { .scroll { overflow: visible; } nav { display: none; } }
"""
