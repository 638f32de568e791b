package experiments

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Measures of a plot, in pixels.
const (
	plotWidth, plotHeight    = 680.0, 380.0
	marginLeft, marginRight  = 70.0, 20.0
	marginTop, marginBottom  = 34.0, 52.0
	legendRow, legendColumns = 18.0, 2
)

// palette is that of Okabe and Ito, which most colour-blind people can tell apart.
var palette = [...]string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#555555", "#000000"}

// WriteSVG writes the plot as an SVG document of its own. It refers to nothing outside of it.
func (p *Plot) WriteSVG(w io.Writer) error {
	text := strings.Replace(p.svg(), "<svg ", `<svg xmlns="http://www.w3.org/2000/svg" `, 1)
	if _, err := io.WriteString(w, text+"\n"); err != nil {
		return fmt.Errorf("write plot %q: %w", p.Name, err)
	}
	return nil
}

// drawing is a plot in the making.
type drawing struct {
	strings.Builder
	plot *Plot
	x, y scaling
}

// svg returns the element that a page can contain.
func (p *Plot) svg() string {
	d := drawing{plot: p}
	var xs, ys []float64
	for _, l := range p.Lines {
		ys = append(ys, l.Y...)
		xs = append(xs, l.X...)
	}
	d.x = newScaling(xs, p.X, marginLeft, plotWidth-marginRight)
	d.y = newScaling(ys, p.Y, plotHeight-marginBottom, marginTop)
	if len(p.X.Names) > 0 {
		d.x = namesScaling(p.X.Names)
	}
	rows := (len(p.Lines) + legendColumns - 1) / legendColumns
	height := plotHeight + float64(rows)*legendRow
	d.put(`<svg viewBox="0 0 %g %g" width="%g" height="%g" role="img" aria-label="%s" font-family="sans-serif" font-size="12">`,
		plotWidth, height, plotWidth, height, html.EscapeString(p.Title))
	d.put(`<rect width="%g" height="%g" fill="#fff"/>`, plotWidth, height)
	d.text(plotWidth/2, 18, "middle", p.Title, ` font-size="14" font-weight="bold"`)
	d.axes()
	for i := range p.Lines {
		if len(p.X.Names) > 0 {
			d.bars(i)
		} else {
			d.line(i)
		}
		d.legend(i)
	}
	d.put("</svg>")
	return d.String()
}

// namesScaling puts names in the middle of equal parts of the axis.
func namesScaling(names []string) scaling {
	s := scaling{low: -0.5, high: float64(len(names)) - 0.5, from: marginLeft, to: plotWidth - marginRight}
	for i := range names {
		s.ticks = append(s.ticks, float64(i))
	}
	s.tickFormat = func(f float64) string { return names[int(f)] }
	return s
}

func (d *drawing) put(format string, args ...any) { fmt.Fprintf(&d.Builder, format, args...) }

func (d *drawing) text(x, y float64, anchor, text, style string) {
	d.put(`<text x="%.1f" y="%.1f" text-anchor="%s"%s>%s</text>`, x, y, anchor, style, html.EscapeString(text))
}

func (d *drawing) axes() {
	const bottom = plotHeight - marginBottom
	for _, v := range d.y.ticks {
		y := d.y.at(v)
		d.put(`<path d="M%g %.1fH%g" stroke="#ddd"/>`, marginLeft, y, plotWidth-marginRight)
		d.text(marginLeft-6, y+4, "end", d.y.tickFormat(v), "")
	}
	for _, v := range d.x.ticks {
		x := d.x.at(v)
		d.put(`<path d="M%.1f %gv5" stroke="#333"/>`, x, bottom)
		// Names of two words take two lines: side by side they would not fit.
		first, second, _ := strings.Cut(d.x.tickFormat(v), " ")
		d.text(x, bottom+18, "middle", first, "")
		if second != "" {
			d.text(x, bottom+32, "middle", second, "")
		}
	}
	d.put(`<path d="M%g %gV%gH%g" fill="none" stroke="#333"/>`, marginLeft, marginTop, bottom, plotWidth-marginRight)
	d.text((marginLeft+plotWidth-marginRight)/2, bottom+38, "middle", d.plot.X.Label, "")
	middle := (marginTop + bottom) / 2
	d.text(16, middle, "middle", d.plot.Y.Label, fmt.Sprintf(` transform="rotate(-90 16 %g)"`, middle))
}

// line draws the i-th line, with a break wherever a point cannot be shown.
func (d *drawing) line(i int) {
	l := d.plot.Lines[i]
	colour, dash := palette[i%len(palette)], ""
	if l.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	var path, marks strings.Builder
	command := 'M'
	for j, x := range l.X {
		if !d.x.shows(x) || !d.y.shows(l.Y[j]) {
			command = 'M'
			continue
		}
		fmt.Fprintf(&path, "%c%.1f %.1f", command, d.x.at(x), d.y.at(l.Y[j]))
		command = 'L'
		if !l.Dashed {
			fmt.Fprintf(&marks, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`, d.x.at(x), d.y.at(l.Y[j]), colour)
		}
	}
	if path.Len() > 0 {
		d.put(`<path d="%s" fill="none" stroke="%s" stroke-width="2"%s/>%s`, path.String(), colour, dash, marks.String())
	}
}

// bars draws the i-th line as bars, beside those of the other lines.
func (d *drawing) bars(i int) {
	l := d.plot.Lines[i]
	part := (d.x.to - d.x.from) / float64(len(d.plot.X.Names))
	width := 0.8 * part / float64(len(d.plot.Lines))
	for j, x := range l.X {
		if !d.x.shows(x) || !d.y.shows(l.Y[j]) {
			continue
		}
		left := d.x.at(x) - 0.4*part + float64(i)*width
		// A logarithmic axis has no zero to stand on: bars stand on its end.
		base, top := d.y.from, d.y.at(l.Y[j])
		if !d.y.log {
			base = d.y.at(0)
		}
		d.put(`<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"/>`,
			left, min(base, top), 0.92*width, max(base-top, top-base), palette[i%len(palette)])
	}
}

func (d *drawing) legend(i int) {
	l := d.plot.Lines[i]
	dash := ""
	if l.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	column := (plotWidth - marginLeft) / legendColumns
	x := marginLeft + float64(i%legendColumns)*column
	y := plotHeight + float64(i/legendColumns)*legendRow
	d.put(`<path d="M%.1f %.1fh22" stroke="%s" stroke-width="3"%s/>`, x, y-4, palette[i%len(palette)], dash)
	d.text(x+28, y, "start", l.Name, "")
}
