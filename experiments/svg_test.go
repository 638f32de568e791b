//go:build invariants

package experiments

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"regexp"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// shapes returns how often each element appears in a document, and checks that it is well formed.
func shapes(t require.TestingT, p Plot) map[string]int {
	var b bytes.Buffer
	require.NoError(t, p.WriteSVG(&b))
	require.NotRegexp(t, `NaN|Inf|%!`, b.String())
	count := make(map[string]int)
	d := xml.NewDecoder(&b)
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return count
		}
		require.NoError(t, err)
		if e, ok := token.(xml.StartElement); ok {
			count[e.Name.Local]++
		}
	}
}

func TestPlotOfLines(t *testing.T) {
	p := Plot{Title: "a < b", X: Axis{Label: "x", Log: true}, Y: Axis{Label: `"y" & more`}, Lines: []Line{
		{Name: "kept", X: []float64{1, 10, 100}, Y: []float64{0, 5, 2}},
		{Name: "bound", X: []float64{1, 100}, Y: []float64{6, 6}, Dashed: true},
	}}
	count := shapes(t, p)
	require.Equal(t, 3, count["circle"], "one for each point that is no bound")
	require.Contains(t, p.svg(), `aria-label="a &lt; b"`)
}

// TestPlotPlacesValues checks positions against the axes.
func TestPlotPlacesValues(t *testing.T) {
	s := newScaling([]float64{1, 1000}, Axis{Log: true}, 0, 300)
	require.InDelta(t, 0, s.at(1), 1e-9)
	require.InDelta(t, 100, s.at(10), 1e-9)
	require.InDelta(t, 300, s.at(1000), 1e-9)
	require.Equal(t, []float64{1, 10, 100, 1000}, s.ticks)
	s = newScaling([]float64{3, 97}, Axis{}, 100, 0)
	require.InDelta(t, 100, s.at(0), 1e-9)
	require.InDelta(t, 50, s.at(50), 1e-9)
	require.Equal(t, []float64{0, 20, 40, 60, 80, 100}, s.ticks)
	s = newScaling([]float64{0.75, 0.76}, Axis{Fit: true}, 100, 0)
	require.InDelta(t, 100, s.at(0.75), 1e-6)
	require.InDelta(t, 0, s.at(0.76), 1e-6)
}

func TestPlotOfBars(t *testing.T) {
	p := Plot{Title: "t", X: Axis{Names: []string{"one", "two"}}, Lines: []Line{
		{Name: "a", X: []float64{0, 1}, Y: []float64{1, 2}}, {Name: "b", X: []float64{0, 1}, Y: []float64{3, math.NaN()}},
	}}
	require.Equal(t, 1+3, shapes(t, p)["rect"], "the ground and the bars")
	heights := regexp.MustCompile(`height="([0-9.]+)" fill="#0072b2"`).FindAllStringSubmatch(p.svg(), -1)
	require.Len(t, heights, 2)
	one, err := strconv.ParseFloat(heights[0][1], 64)
	require.NoError(t, err)
	two, err := strconv.ParseFloat(heights[1][1], 64)
	require.NoError(t, err)
	require.InDelta(t, 2, two/one, 0.01, "bars stand on zero")
}

// TestAnyPlotIsWellFormed draws whatever values there are.
func TestAnyPlotIsWellFormed(t *testing.T) {
	value := rapid.OneOf(rapid.Float64(), rapid.SampledFrom([]float64{0, 1, -1, math.NaN(), math.Inf(1), math.Inf(-1)}))
	rapid.Check(t, func(t *rapid.T) {
		p := Plot{Title: rapid.String().Draw(t, "title")}
		p.X.Log, p.Y.Log = rapid.Bool().Draw(t, "x log"), rapid.Bool().Draw(t, "y log")
		p.Y.Fit = rapid.Bool().Draw(t, "y fit")
		for range rapid.IntRange(0, 4).Draw(t, "lines") {
			n := rapid.IntRange(0, 5).Draw(t, "points")
			p.Lines = append(p.Lines, Line{
				Name:   rapid.StringMatching(`[a-z<>&"]{0,9}`).Draw(t, "name"),
				X:      rapid.SliceOfN(value, n, n).Draw(t, "x"),
				Y:      rapid.SliceOfN(value, n, n).Draw(t, "y"),
				Dashed: rapid.Bool().Draw(t, "dashed"),
			})
		}
		p.Title = regexp.MustCompile(`[^a-zA-Z0-9 <>&"']`).ReplaceAllString(p.Title, "")
		shapes(t, p)
	})
}

func TestTickText(t *testing.T) {
	for f, want := range map[float64]string{0: "0", 1e-17: "0", 20: "20", 0.5: "0.5", 5e3: "5k", 2.5e7: "25M", 1e9: "1G", 1e12: "1e+12", -2e3: "-2k"} {
		require.Equal(t, want, tickText(f))
	}
}
