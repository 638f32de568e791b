package job

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/afstream/afstream/algorithms/histogram"
	"github.com/afstream/afstream/connector"
)

// HistogramReport is what the job histogram has done.
type HistogramReport = Report[Distribution, HistogramVerification]

// Distribution is what the job histogram found.
type Distribution struct {
	Layout Layout `json:"layout"`
	Total  uint64 `json:"total"` // numbers, as far as failures left them
	// Bins are in the order of their numbers: all of EquiWidth, those that hold numbers of Quantile.
	Bins      []Bin           `json:"bins"`
	Quantiles []QuantileValue `json:"quantiles"`
}

// Bin is a range of numbers. Which end belongs to it depends on the layout: From for EquiWidth.
type Bin struct {
	From  Number `json:"from"` // null: all that are less than To
	To    Number `json:"to"`   // null: all from From on
	Count uint64 `json:"count"`
}

// QuantileValue is a quantile.
type QuantileValue struct {
	Share Number `json:"share"`
	Value Number `json:"value"` // null if there are no numbers
	// Beyond says that it is beyond the range and Value the end of that.
	Beyond bool `json:"beyond_range"`
}

// histogramOf returns what a run has made, a histogram of nothing if it came to none.
func histogramOf(found []histogram.Histogram) histogram.Histogram {
	if len(found) == 0 {
		return histogram.Histogram{}
	}
	return found[len(found)-1]
}

func (h *Histogram) answer(found []histogram.Histogram) Distribution {
	whole := histogramOf(found)
	d := Distribution{Layout: h.Layout, Total: whole.Total(), Bins: []Bin{}, Quantiles: []QuantileValue{}}
	l := whole.Layout()
	for bin := range l.Bins() {
		low, high := l.Bounds(bin)
		inner := h.Layout == EquiWidth && !math.IsInf(low, 0) && !math.IsInf(high, 0)
		if n := whole.Count(bin); n > 0 || inner {
			d.Bins = append(d.Bins, Bin{From: Number(low), To: Number(high), Count: n})
		}
	}
	for _, q := range h.Quantiles {
		value, ok := whole.Quantile(q)
		d.Quantiles = append(d.Quantiles, QuantileValue{Share: Number(q), Value: Number(value), Beyond: !ok && whole.Total() > 0})
	}
	return d
}

// write implements answer. A verified job has the exact figures beside its own.
func (d Distribution) write(b *bytes.Buffer, v *HistogramVerification) error {
	if d.Total == 0 {
		fmt.Fprintln(b, "no numbers")
		return nil
	}
	if d.Layout == EquiWidth { // the bins of the other are many, and mean little to people
		if err := d.writeBins(b, v); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	if len(d.Quantiles) > 0 {
		if err := d.writeQuantiles(b, v); err != nil {
			return err
		}
		b.WriteByte('\n')
	}
	fmt.Fprintln(b, plural(d.Total, "number", "numbers"))
	return nil
}

// end writes an end of a range, which may be open.
func end(n Number) string {
	if math.IsInf(float64(n), 0) {
		return ""
	}
	return n.String()
}

func (d Distribution) writeBins(b *bytes.Buffer, v *HistogramVerification) error {
	columns := []connector.Column[Bin]{
		{Title: "from", Number: true, Value: func(bin Bin) string { return end(bin.From) }},
		{Title: "below", Number: true, Value: func(bin Bin) string { return end(bin.To) }},
		{Title: "count", Number: true, Value: func(bin Bin) string { return group(bin.Count) }},
		{Title: "share", Number: true, Value: func(bin Bin) string { return percent(float64(bin.Count) / float64(d.Total)) }},
	}
	if v != nil {
		columns = append(columns, connector.Column[Bin]{Title: "exact count", Number: true, Value: func(bin Bin) string {
			return group(v.exactBin(bin))
		}})
	}
	return writeTable(b, d.Bins, columns)
}

func (d Distribution) writeQuantiles(b *bytes.Buffer, v *HistogramVerification) error {
	columns := []connector.Column[QuantileValue]{
		{Title: "quantile", Number: true, Value: func(q QuantileValue) string { return q.Share.String() }},
		{Title: "value", Number: true, Value: func(q QuantileValue) string {
			if q.Beyond {
				return "beyond " + q.Value.String()
			}
			return q.Value.String()
		}},
	}
	if v != nil {
		of := func(q QuantileValue) ExactQuantile {
			i := slices.IndexFunc(v.Quantiles, func(e ExactQuantile) bool { return e.Share == q.Share })
			return v.Quantiles[i]
		}
		number := func(title string, value func(ExactQuantile) string) connector.Column[QuantileValue] {
			return connector.Column[QuantileValue]{Title: title, Number: true, Value: func(q QuantileValue) string { return value(of(q)) }}
		}
		columns = append(columns,
			number("exact", func(e ExactQuantile) string { return e.Exact.String() }),
			number("at least", func(e ExactQuantile) string { return end(e.Low) }),
			number("at most", func(e ExactQuantile) string { return end(e.High) }),
			number("rank error", func(e ExactQuantile) string { return group(e.RankError) }))
	}
	return writeTable(b, d.Quantiles, columns)
}
