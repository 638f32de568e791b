package logreg

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/errorbound"
	"github.com/afstream/afstream/internal/statetest"
)

func TestLibsvm(t *testing.T) {
	for line, want := range map[string]*Example{
		"1 1:1 3:-2.5":        {true, []Feature{{0, 1}, {2, -2.5}}},
		"+1 3:0.5 1:1 # note": {true, []Feature{{0, 1}, {2, 0.5}}},
		"-1\t2:1e-1 \r\n":     {false, []Feature{{1, 0.1}}},
		"0":                   {false, nil},
		"  ":                  nil,
		"# 1 1:1":             nil,
	} {
		l := Libsvm{First: 1}
		e, ok, err := l.Parse([]byte(line))
		require.NoError(t, err, line)
		require.Equal(t, want != nil, ok, line)
		if ok {
			require.Equal(t, *want, e, line)
		}
	}
	for _, line := range []string{
		"2 1:1", "x", "1 1", "1 1:", "1 :1", "1 0:1", "1 -1:1", "1 10:1", "1 1:nan", "1 1:inf", "1 1:1e99", "1 1:1 1:2",
		"1 99999999999999999999:1", "1 1:1 qid:3", "1 1:1:1", "1 1.5:1",
	} {
		l := Libsvm{First: 1, Last: 9}
		_, ok, err := l.Parse([]byte(line))
		require.ErrorIs(t, err, ErrExample, line)
		require.False(t, ok, line)
		e, ok, err := l.Parse([]byte("1 2:3"))
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, Example{true, []Feature{{1, 3}}}, e, "nothing is left of a bad line")
	}
	zero := Libsvm{}
	e, _, err := zero.Parse([]byte("1 0:1"))
	require.NoError(t, err)
	require.Equal(t, Example{true, []Feature{{0, 1}}}, e)
	_, _, err = zero.Parse([]byte("1 268435456:1"))
	require.ErrorIs(t, err, ErrExample)
}

func TestParseLines(t *testing.T) {
	p := ParseLibsvm(Libsvm{First: 1}, FailOnBad)
	require.NoError(t, p.Process("# nothing", nil))
	require.ErrorContains(t, p.Process("bad", nil), "line 2")
	p = ParseFlights(8, SkipBad)
	for _, line := range []string{FlightsHeader, "", "1,2,3,A", "1,2,3,A,B,C", "x,2,3,A,B", "1,x,3,A,B", "1,2,x,A,B"} {
		require.NoError(t, p.Process(line, nil))
	}
	require.Equal(t, uint64(5), p.Skipped())
}

// TestHasher: a category has the same feature wherever it comes, and features fit the model.
func TestHasher(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bits := rapid.IntRange(1, MaxBits).Draw(t, "bits")
		h := NewHasher(bits)
		h.Add("a", "x")
		h.AddNumber("n", rapid.Int64().Draw(t, "n"))
		h.Add("b", rapid.String().Draw(t, "value"))
		e := h.Example(true)
		require.NoError(t, e.check(1<<bits-1, 1))
		h.Add("a", "x")
		one := h.Example(false)
		require.Len(t, one.Features, 1)
		require.Contains(t, e.Features, one.Features[0])
		f := Flight{Micros: rapid.Int64Range(-1<<50, 1<<50).Draw(t, "micros"), Origin: "ANC", Destination: "LAX", Delay: 16}
		e = h.Flight(&f)
		require.NoError(t, e.check(1<<bits-1, 1))
		require.True(t, e.Positive)
		require.LessOrEqual(t, len(e.Features), 10)
	})
	h := NewHasher(18)
	h.Add("a", "b=c")
	h.Add("a=b", "c")
	require.Len(t, h.Example(true).Features, 1, "columns are told apart by their names alone")
}

// TestReuse: an example that is made over another one is as any other, and takes memory of its own only if it must.
func TestReuse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		over, plain := NewHasher(12), NewHasher(12)
		var old Example
		for range rapid.IntRange(1, 20).Draw(t, "rows") {
			over.Reuse(old)
			for _, v := range rapid.SliceOfN(rapid.Int64Range(0, 40), 1, 12).Draw(t, "row") {
				over.AddNumber("n", v)
				plain.AddNumber("n", v)
			}
			e := over.Example(true)
			require.Equal(t, plain.Example(true), e)
			require.False(t, len(e.Features) <= cap(old.Features) && &e.Features[0] != &old.Features[:1][0])
			old = e
		}
	})
	var l Libsvm
	old, _, err := l.Parse([]byte("1 3:1 5:2"))
	require.NoError(t, err)
	l.Reuse(old)
	e, _, err := l.Parse([]byte("0 7:1"))
	require.NoError(t, err)
	require.Same(t, &old.Features[0], &e.Features[0])
	kept, _, err := l.Parse([]byte("1 9:1"))
	require.NoError(t, err)
	require.NotSame(t, &kept.Features[0], &e.Features[0], "memory is given once")
}

// TestPrequential checks the counts against their definitions.
func TestPrequential(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	var q, half Prequential
	var p []float64
	var y []bool
	for i := range 3000 {
		x := (float64(r.IntN(buckets)) + 0.5) / buckets // no two in one bucket but equal ones
		p, y = append(p, x), append(y, r.Float64() < x)
		q.Add(x, y[i])
		if i < 1500 {
			half.Add(x, y[i])
		}
	}
	loss, correct, wins, pairs, positives := 0.0, 0.0, 0.0, 0.0, 0.0
	for i := range p {
		given := 1 - p[i]
		if y[i] {
			given = p[i]
			positives++
		}
		loss -= math.Log(max(given, 1e-15))
		if given > 0.5 {
			correct++
		}
		for j := range p {
			if y[i] && !y[j] {
				pairs++
				wins += map[int]float64{1: 1, 0: 0.5}[cmpFloat(p[i], p[j])]
			}
		}
	}
	got := q.Quality()
	share := positives / 3000
	require.Equal(t, uint64(3000), got.Examples)
	require.Equal(t, uint64(positives), got.Positive)
	require.InDelta(t, loss/3000, got.LogLoss, 1e-12)
	require.InDelta(t, correct/3000, got.Accuracy, 1e-12)
	require.InDelta(t, wins/pairs, got.AUC, 1e-12)
	require.InDelta(t, -share*math.Log(share)-(1-share)*math.Log(1-share), got.BaseLoss, 1e-12)

	var rest Prequential
	for i := 1500; i < 3000; i++ {
		rest.Add(p[i], y[i])
	}
	half.Merge(&rest)
	merged := half.Quality()
	require.InDelta(t, got.LogLoss, merged.LogLoss, 1e-12)
	merged.LogLoss = got.LogLoss
	require.Equal(t, got, merged)

	require.Equal(t, Quality{AUC: 0.5}, new(Prequential).Quality())
	var odd Prequential
	for _, x := range []float64{math.NaN(), math.Inf(1), -1, 0, 1} {
		odd.Add(x, true)
	}
	require.Equal(t, 0.5, odd.Quality().AUC)
	require.False(t, math.IsNaN(odd.Quality().LogLoss))
}

func cmpFloat(a, b float64) int {
	switch {
	case a > b:
		return 1
	case a == b:
		return 0
	}
	return -1
}

func TestDistance(t *testing.T) {
	a := []Weight{{1, 3}, {5, 1}}
	b := []Weight{{2, 4}, {5, 1}}
	require.Equal(t, 5.0, Distance(a, b))
	require.Equal(t, 5.0, Distance(b, a))
	require.Zero(t, Distance(nil, nil))
	require.Equal(t, 3.0, Distance(nil, a[:1]))
}

// TestRegret runs plain SGD on a sequence of examples and compares with the best of many fixed models, without failures and
// with the worst that the budget allows to happen.
func TestRegret(t *testing.T) {
	o := Options{Bits: 3, Method: SGD, Rate: 1, Every: 1 << 30}
	examples := synthetic(9, 3, 4000)
	best := NewLearner(o) // trained over and over, it is close to the best fixed model
	for range 30 {
		for i := range examples {
			require.NoError(t, best.learn(&examples[i], nil))
		}
	}
	p := errorbound.Params{Theta: 2, L: 4}
	fixed := 0.0
	for i := range examples {
		fixed += lossOf(best.Predict(&examples[i]), examples[i].Positive)
	}
	for _, failures := range []int{0, 8} {
		l, loss, radius := NewLearner(o), 0.0, 0.0
		for i := range examples {
			if failures > 0 && i%500 == 250 { // each moves a weight by its part of the budget
				l.own.Add(i/500, p.StateBound(0.5)/float64(failures))
			}
			loss += lossOf(l.Predict(&examples[i]), examples[i].Positive)
			require.NoError(t, l.learn(&examples[i], nil))
			squares := 0.0
			for k := range l.width {
				d := l.weight(k) - best.weight(k)
				squares += d * d
			}
			radius = max(radius, math.Sqrt(squares))
		}
		r := Regret{Examples: float64(len(examples)), Rate: 1, Radius: radius, Gradient: 3}
		bound := r.Base()
		if failures > 0 {
			bound += r.Extra(p, 0.5)
		}
		require.LessOrEqual(t, loss-fixed, bound)
		require.Positive(t, loss-fixed)
	}
	require.Equal(t, 8.0, LossBound(p, 0.5, 2))
	one, four := Regret{Examples: 1, Rate: 1, Radius: 1}, Regret{Examples: 4, Rate: 1, Radius: 1}
	require.Equal(t, 12.0, one.Extra(p, 0.5), "1/2 * (2*4 + 16)")
	require.Equal(t, 24.0, four.Extra(p, 0.5), "it grows with the root, so its mean goes to 0")
	require.Equal(t, 0.5, one.Base())
}

func lossOf(p float64, positive bool) float64 {
	if !positive {
		p = 1 - p
	}
	return -math.Log(p)
}

// TestFlightsExtract: on the flights of two days that come with the program the model beats the base rate.
func TestFlightsExtract(t *testing.T) {
	l := NewLearner(Options{Bits: 18, MaxFeatures: 10, Every: 1 << 30})
	examples := flights(t, 18)
	require.Len(t, examples, 20_000)
	require.NoError(t, l.ProcessBatch(examples, nil))
	q := l.Quality().Quality()
	t.Logf("%+v", q)
	require.Less(t, q.LogLoss, 0.95*q.BaseLoss)
	require.Greater(t, q.AUC, 0.65)
}

// fetched opens what data/fetch.sh has fetched, and skips the test if it has not.
func fetched(t *testing.T, name string) *os.File {
	f, err := os.Open("../../data/.data/" + name)
	if errors.Is(err, os.ErrNotExist) {
		f, err = os.Open("../../.data/" + name)
	}
	if errors.Is(err, os.ErrNotExist) {
		t.Skipf("%s is not there, see data/fetch.sh", name)
	}
	require.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return f
}

// TestMushrooms is a known answer: one pass over agaricus tells edible from poisonous.
func TestMushrooms(t *testing.T) {
	text, err := io.ReadAll(fetched(t, "agaricus.train"))
	require.NoError(t, err)
	l := NewLearner(Options{Bits: 7, Rate: 0.5, MaxFeatures: 22, Every: 1 << 30})
	parser := Libsvm{First: 1, Last: 126}
	for line := range bytes.Lines(text) {
		e, ok, err := parser.Parse(line)
		require.NoError(t, err)
		require.True(t, ok)
		require.NoError(t, l.learn(&e, nil))
	}
	q := l.Quality().Quality()
	t.Logf("%+v", q)
	require.Equal(t, uint64(6513), q.Examples)
	require.LessOrEqual(t, q.LogLoss, 0.025)
	require.GreaterOrEqual(t, q.Accuracy, 0.99)
}

func FuzzLibsvm(f *testing.F) {
	f.Add([]byte("1 1:1 3:-2.5 # x"), 1)
	f.Add([]byte("-1 5:1e-40 0:1"), 0)
	f.Fuzz(func(t *testing.T, line []byte, first int) {
		l := Libsvm{First: first & 1}
		e, ok, err := l.Parse(line)
		if err != nil {
			require.ErrorIs(t, err, ErrExample)
			return
		}
		if ok {
			require.NoError(t, e.check(1<<MaxBits-1, math.MaxFloat32))
		}
	})
}

func FuzzFlight(f *testing.F) {
	f.Add("978307260000000,33,2176,LAS,PHL")
	f.Fuzz(func(t *testing.T, line string) {
		p := ParseFlights(4, FailOnBad)
		e, ok, err := p.parse(line)
		if err != nil {
			require.ErrorIs(t, err, ErrExample)
			return
		}
		require.True(t, !ok || e.check(15, 1) == nil)
	})
}

func FuzzExample(f *testing.F) {
	statetest.FuzzBinary(f, ErrExample, nil, Example{true, []Feature{{1, 2}, {7, -1}}})
}

func FuzzUpdate(f *testing.F) {
	statetest.FuzzBinary(f, ErrMessage, nil, Update{1, 2, true, false, 3, 4, []uint32{5}, []float64{6}})
}

func FuzzModel(f *testing.F) {
	statetest.FuzzBinary(f, ErrMessage, nil, Model{1, 2, 3, 4, true, []uint32{5}, []float64{6}})
}

func FuzzWeight(f *testing.F) { statetest.FuzzBinary(f, ErrMessage, nil, Weight{3, 0.5}) }
