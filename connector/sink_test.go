package connector

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

func mustSink[T any](t *testing.T, factory stream.NewSink[T], part, parts int) stream.Sink[T] {
	t.Helper()
	s, err := factory(part, parts)
	require.NoError(t, err)
	return s
}

func TestCollect(t *testing.T) {
	var c Collector[int]
	factory := Collect(&c)
	var wg sync.WaitGroup
	for p := range 3 {
		s := mustSink(t, factory, p, 3)
		wg.Go(func() {
			buf := []int{0} // reused, as the runtime's slabs are
			for i := range 100 {
				buf[0] = p*100 + i
				if s.Write(buf) != nil {
					return
				}
			}
			_ = s.Close()
		})
	}
	wg.Wait()
	require.Equal(t, 300, c.Len())
	for i, v := range c.Items() {
		require.Equal(t, i, v)
	}
	c.Reset()
	require.Empty(t, c.Items())
}

// TestCollectAfterAFailure: what was not flushed comes again, from the successor only.
func TestCollectAfterAFailure(t *testing.T) {
	var c Collector[int]
	factory := Collect(&c)
	first := mustSink(t, factory, 0, 1)
	require.NoError(t, first.Write([]int{1, 2}))
	require.NoError(t, first.(stream.Flusher).Flush())
	require.NoError(t, first.Write([]int{3}))
	second := mustSink(t, factory, 0, 1)
	require.Error(t, first.Write([]int{4}), "the first one is a zombie now")
	require.Error(t, first.(stream.Flusher).Flush())
	require.NoError(t, second.Write([]int{3, 4}))
	require.NoError(t, second.Close())
	require.Equal(t, []int{1, 2, 3, 4}, c.Items())
}

// TestCollectInChunks: items of any size stay in order, whatever comes at a time and is cut off again.
func TestCollectInChunks(t *testing.T) {
	inChunks(t, chunkBytes/8, func(i int) uint64 { return uint64(i) })
	inChunks(t, 4, func(i int) [1000]uint64 { return [1000]uint64{7: uint64(i)} })
	inChunks(t, 1, func(i int) [9000]uint64 { return [9000]uint64{7: uint64(i)} })
	inChunks(t, chunkBytes, func(int) struct{} { return struct{}{} })
}

// inChunks checks items of which a chunk holds so many.
func inChunks[T any](t *testing.T, most int, item func(int) T) {
	t.Helper()
	require.Equal(t, most, chunkItems[T]())
	r := rand.New(rand.NewPCG(1, uint64(most)))
	var p collected[T]
	var want []T
	for i := range 40 {
		if i%4 == 3 {
			want = want[:r.IntN(len(want)+1)]
			p.cut(len(want))
		} else {
			for range r.IntN(most + 2) {
				want = append(want, item(len(want)+i))
			}
			p.add(want[p.n:])
		}
		require.Equal(t, len(want), p.n)
		for k, chunk := range p.chunks {
			require.True(t, len(chunk) == most || k == len(p.chunks)-1, "all but the last are full")
		}
		require.True(t, reflect.DeepEqual(want, slices.Concat(p.chunks...)) || len(want) == 0 && len(slices.Concat(p.chunks...)) == 0)
	}
}

func TestTable(t *testing.T) {
	var b bytes.Buffer
	s := mustSink(t, Table(&b,
		Column[pair]{Title: "key", Value: func(p pair) string { return p.key }},
		Column[pair]{Title: "weight", Value: func(p pair) string { return strings.Repeat("9", int(p.weight)) }, Number: true},
		Column[pair]{Title: "note", Value: func(p pair) string { return p.key[:1] }},
	), 0, 1)
	require.NoError(t, s.Write([]pair{{"a", 1}, {"größer", 3}}))
	require.NoError(t, s.Write([]pair{{"\x1b[31m\xff\n", 2}}))
	require.Zero(t, b.Len())
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.Equal(t, ""+
		"key               weight  note\n"+
		"a                      9  a\n"+
		"größer               999  g\n"+
		`\x1b[31m\xff\x0a      99  \x1b`+"\n", b.String())

	_, err := Table[pair](&b)(0, 1)
	require.Error(t, err)
	_, err = Table(&b, Column[pair]{Title: "x"})(0, 1)
	require.ErrorContains(t, err, `column "x"`)
}

type brokenWriter struct{}

func (brokenWriter) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

func TestSinksReportWhatTheyCannotWrite(t *testing.T) {
	s := mustSink(t, Table(brokenWriter{}, Column[int]{Title: "n", Value: func(int) string { return "" }}), 0, 1)
	require.ErrorContains(t, s.Close(), "disk is full")
	j := mustSink(t, JSONL[int](brokenWriter{}), 0, 1)
	require.NoError(t, j.Write([]int{1}))
	require.ErrorContains(t, j.Close(), "disk is full")
	bad := mustSink(t, JSONL[func()](&bytes.Buffer{}), 0, 1)
	require.Error(t, bad.Write([]func(){nil}))
}

type inner struct {
	X float64 `json:"x"`
	Y float64 `json:"y,omitempty"`
}

type outer struct {
	inner
	*Pointed
	Named inner              `json:"named"`
	List  []float64          `json:"list"`
	Map   map[string]float64 `json:"map,omitempty"`
	Any   any
	Raw   []byte
	Text  string
	Skip  float64 `json:"-"`
	When  time.Time
	Key   Key
	Ptr   *float64
	Zero  int `json:",omitzero"`
	note  float64
}

type Pointed struct{ Deep [2]float32 }

func jsonl[T any](t require.TestingT, items ...T) string {
	var b bytes.Buffer
	s, err := JSONL[T](&b)(0, 1)
	require.NoError(t, err)
	require.NoError(t, s.Write(items))
	require.Zero(t, b.Len(), "nothing before Flush: a successor would write it again")
	require.NoError(t, s.(stream.Flusher).Flush())
	require.NoError(t, s.Close())
	return b.String()
}

func TestJSONLSinkSurvivesNaN(t *testing.T) {
	nan, inf := math.NaN(), math.Inf(-1)
	require.Equal(t, "1.5\nnull\nnull\n", jsonl(t, 1.5, nan, inf))
	require.Equal(t, "{\"Hash\":1,\"Weight\":null,\"Key\":\"a\"}\n", jsonl(t, Keyed{Hash: 1, Weight: nan, Key: MakeKey([]byte("a"))}))
	got := jsonl(t, outer{
		inner: inner{X: nan}, Pointed: &Pointed{Deep: [2]float32{1, float32(inf)}}, Named: inner{X: 1, Y: inf},
		List: []float64{nan, 2}, Map: map[string]float64{"b": inf, "a": 1}, Any: nan, Raw: []byte("raw"),
		Text: "<", Key: MakeKey([]byte("k")), Ptr: &nan, note: 1,
	})
	require.Equal(t, `{"x":null,"Deep":[1,null],"named":{"x":1,"y":null},"list":[null,2],"map":{"a":1,"b":null},"Any":null,`+
		`"Raw":"cmF3","Text":"\u003c","When":"0001-01-01T00:00:00Z","Key":"k","Ptr":null}`+"\n", got)
}

// TestAppendFiniteIsEncodingJSON: apart from the nulls the two must agree byte for byte.
func TestAppendFiniteIsEncodingJSON(t *testing.T) {
	number := rapid.Float64()
	rapid.Check(t, func(t *rapid.T) {
		v := outer{
			inner: inner{X: number.Draw(t, "x"), Y: rapid.SampledFrom([]float64{0, 1}).Draw(t, "y")},
			Named: inner{X: number.Draw(t, "nx")},
			List:  rapid.SliceOfN(number, 0, 3).Draw(t, "list"),
			Map:   rapid.MapOfN(rapid.String(), number, 0, 3).Draw(t, "map"),
			Raw:   rapid.SliceOfN(rapid.Byte(), 0, 3).Draw(t, "raw"),
			Text:  rapid.String().Draw(t, "text"),
			Zero:  rapid.IntRange(0, 1).Draw(t, "zero"),
		}
		if rapid.Bool().Draw(t, "pointed") {
			v.Pointed = &Pointed{}
			v.List = nil
		}
		want, err := json.Marshal(v)
		require.NoError(t, err)
		v.Any = math.NaN() // sends it the other way, and is null as nil is
		require.Equal(t, string(want)+"\n", jsonl(t, v))
	})
}

func TestDiscard(t *testing.T) {
	s := mustSink(t, Discard[int](), 0, 1)
	require.NoError(t, s.Write([]int{1}))
	require.NoError(t, s.Close())
}
