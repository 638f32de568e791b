package connector

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unsafe"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSizes(t *testing.T) {
	require.EqualValues(t, 40, unsafe.Sizeof(Key{}))
	require.EqualValues(t, 56, unsafe.Sizeof(Keyed{}))
}

func TestKeyKeepsShortText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SliceOfN(rapid.Byte(), 0, MaxKeyLen).Draw(t, "text")
		k := MakeKey(text)
		got, whole := k.Text()
		require.True(t, whole)
		require.Equal(t, string(text), got)
		require.Equal(t, string(text), k.String())
		require.Equal(t, xxhash.Sum64(text), k.Hash())
	})
}

func TestKeyKeepsLongTextDistinct(t *testing.T) {
	long := strings.Repeat("x", MaxKeyLen+1)
	a, b := MakeKey([]byte(long)), MakeKey([]byte(long+"y"))
	require.NotEqual(t, a, b)
	require.NotEqual(t, a.Hash(), b.Hash())
	require.Equal(t, xxhash.Sum64String(long), a.Hash())
	require.Equal(t, strings.Repeat("x", 31)+"~926f564e1b3e18d5", a.String())
	text, whole := a.Text()
	require.False(t, whole)
	require.Equal(t, strings.Repeat("x", 31), text)
	require.NotEqual(t, a, MakeKey(a.b[:]), "text of the same bytes is another key")
}

// TestKeyForgetsWhatWasInTheSlab: keys are set in place, and == compares all 40 bytes.
func TestKeyForgetsWhatWasInTheSlab(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var k Key
		for range 3 {
			text := rapid.SliceOfN(rapid.Byte(), 0, 60).Draw(t, "text")
			k.set(text)
			require.Equal(t, MakeKey(text), k)
		}
		f := flow{src: make([]byte, 4), dst: []byte{1, 2, 3, 4}, proto: protoTCP}
		var fresh Key
		fresh.setFlow(&f, packetPair)
		k.setFlow(&f, packetPair)
		require.Equal(t, fresh, k)
	})
}

func TestPacketKeys(t *testing.T) {
	v4 := flow{src: []byte{10, 0, 0, 1}, dst: []byte{10, 0, 0, 2}, proto: protoTCP, sport: 80, dport: 5000}
	v6 := v4
	v6.src = append([]byte{0x20, 1, 0xd, 0xb8}, make([]byte, 12)...)
	v6.dst = append(make([]byte, 15), 1)
	icmp := v4
	icmp.proto = protoICMP
	other := v4
	other.proto = 47
	seen := map[uint64]bool{}
	for _, c := range []struct {
		f    flow
		want packetKey
		text string
	}{
		{v4, packetSrc, "10.0.0.1"},
		{v4, packetDst, "10.0.0.2"},
		{v4, packetPair, "10.0.0.1>10.0.0.2"},
		{v4, packetFlow, "10.0.0.1:80>10.0.0.2:5000/tcp"},
		{icmp, packetFlow, "10.0.0.1>10.0.0.2/icmp"},
		{other, packetFlow, "10.0.0.1>10.0.0.2/47"},
		{v6, packetSrc, "2001:db8::"},
		{v6, packetDst, "::1"},
		{v6, packetPair, "2001:db8::>::1"},
		{v6, packetFlow, "[2001:db8::]:80>[::1]:5000/tcp"},
	} {
		var k Key
		k.setFlow(&c.f, c.want)
		require.Equal(t, c.text, k.String())
		require.NotEqual(t, MakeKey(k.bytes()), k, "text of the same bytes is another key")
		text := MakeKey(k.bytes())
		require.NotEqual(t, text.Hash(), k.Hash())
		require.False(t, seen[k.Hash()])
		seen[k.Hash()] = true
		b, err := k.AppendBinary(nil)
		require.NoError(t, err)
		var again Key
		require.NoError(t, again.UnmarshalBinary(b))
		require.Equal(t, k, again)
		j, err := json.Marshal(k)
		require.NoError(t, err)
		require.JSONEq(t, `"`+c.text+`"`, strings.ReplaceAll(string(j), `\u003e`, ">"))
	}
}

func TestKeyedRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		item := MakeKeyed(rapid.SliceOfN(rapid.Byte(), 0, 80).Draw(t, "key"),
			math.Float64frombits(rapid.Uint64().Draw(t, "weight")))
		b, err := item.AppendBinary([]byte("before"))
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), 6+56)
		var again Keyed
		require.NoError(t, again.UnmarshalBinary(b[6:]))
		require.Equal(t, item.Key, again.Key)
		require.Equal(t, item.Hash, again.Hash)
		require.Equal(t, math.Float64bits(item.Weight), math.Float64bits(again.Weight))
		for cut := range len(b) - 6 { // nothing shorter passes for an item
			left := again
			require.ErrorIs(t, left.UnmarshalBinary(b[6:6+cut]), ErrBadItem)
			require.Equal(t, again.Key, left.Key)
		}
	})
}

func FuzzKeyed(f *testing.F) {
	b, _ := MakeKeyed([]byte("key"), 2).AppendBinary(nil)
	f.Add(b)
	b, _ = MakeKeyed([]byte(strings.Repeat("long", 20)), 2).AppendBinary(nil)
	f.Add(b)
	f.Fuzz(func(t *testing.T, b []byte) {
		var item Keyed
		if err := item.UnmarshalBinary(b); err != nil {
			require.ErrorIs(t, err, ErrBadItem)
			return
		}
		again, err := item.AppendBinary(nil)
		require.NoError(t, err)
		require.Equal(t, b, again, "one item has one encoding")
		_ = item.Key.String()
		_ = item.Key.Hash()
	})
}
