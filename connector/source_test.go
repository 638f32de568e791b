package connector

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/afstream/afstream/stream"
)

// TestSeek checks the promise that replay rests on: from any position, in the same
// source or in a new one, come the same items bit for bit.
func TestSeek(t *testing.T) {
	for _, s := range samples(t, 400) {
		t.Run(s.name, func(t *testing.T) {
			s.o.Path = writeFile(t, s.name, s.content)
			all := read(t, s.o)
			require.Greater(t, len(all), 300)
			factory, err := OpenKeyed(s.o)
			require.NoError(t, err)
			rapid.Check(t, func(t *rapid.T) { checkSeek(t, factory, all) })
		})
	}
}

func checkSeek(t *rapid.T, factory stream.NewSource[Keyed], all []Keyed) {
	first, err := factory(0, 1)
	require.NoError(t, err)
	defer first.Close()
	// Read some way in batches of any size, noting where each ended.
	at := []stream.Position{first.(stream.Replayable).Position()}
	var got []Keyed
	for want := rapid.IntRange(0, len(all)).Draw(t, "read"); len(got) < want; {
		dst := make([]Keyed, rapid.IntRange(1, 100).Draw(t, "batch"))
		n, err := first.Read(dst)
		if err != io.EOF {
			require.NoError(t, err)
		}
		got = append(got, dst[:n]...)
		at = append(at, first.(stream.Replayable).Position())
		require.Equal(t, uint64(len(got)), at[len(at)-1].Item)
	}
	p := rapid.SampledFrom(at).Draw(t, "position")
	if rapid.Bool().Draw(t, "without hints") {
		p = stream.Position{Item: p.Item}
	}
	again := first
	if rapid.Bool().Draw(t, "in a new source") {
		again, err = factory(0, 1)
		require.NoError(t, err)
		defer again.Close()
	}
	require.NoError(t, again.(stream.Replayable).Seek(p))
	require.Equal(t, p.Item, again.(stream.Replayable).Position().Item)
	rest, err := drain(again, rapid.IntRange(1, 300).Draw(t, "rest batch"))
	require.NoError(t, err)
	require.Equal(t, all[p.Item:], append([]Keyed{}, rest...))
	end := again.(stream.Replayable).Position()
	require.Equal(t, uint64(len(all)), end.Item)
	require.NoError(t, again.(stream.Replayable).Seek(end))
	n, err := again.Read(make([]Keyed, 1))
	require.Zero(t, n)
	require.Equal(t, io.EOF, err)
}

func TestSeekCountsSkippedRowsOnce(t *testing.T) {
	path := writeFile(t, "a.txt.gz", zipped(t, []byte("a x\nb 1\nc x\nd 1\n")))
	s := open(t, KeyedOptions{Path: path, OnBad: SkipBad})
	require.NoError(t, s.(stream.Replayable).Seek(stream.Position{Item: 1}))
	require.Zero(t, s.(Skipper).Skipped())
	items, err := drain(s, 10)
	require.NoError(t, err)
	require.Equal(t, []pair{{"d", 1}}, pairs(items))
	require.EqualValues(t, 1, s.(Skipper).Skipped())
}

func TestSeekBeyondTheInput(t *testing.T) {
	for _, s := range samples(t, 40) {
		t.Run(s.name, func(t *testing.T) {
			s.o.Path = writeFile(t, s.name, s.content)
			src := open(t, s.o)
			for _, p := range []stream.Position{{Item: 1000}, {Item: 1000, Offset: 1 << 40, Line: 1 << 40}} {
				require.ErrorIs(t, src.(stream.Replayable).Seek(p), ErrBadPosition)
				_, err := src.Read(make([]Keyed, 1))
				require.ErrorIs(t, err, ErrBadPosition, "a failed Seek must not go on somewhere")
			}
			require.NoError(t, src.(stream.Replayable).Seek(stream.Position{}), "and a good one repairs it")
		})
	}
}

func TestSeekNoticesAnotherInput(t *testing.T) {
	path := writeFile(t, "a.txt", []byte("one\ntwo\nthree\n"))
	s := open(t, KeyedOptions{Path: path})
	_, err := s.Read(make([]Keyed, 2))
	require.NoError(t, err)
	p := s.(stream.Replayable).Position()
	require.Equal(t, stream.Position{Item: 2, Offset: 8, Line: 2}, p)
	require.NoError(t, os.WriteFile(path, []byte("other, longer lines\nof text\n"), 0o600))
	require.ErrorIs(t, s.(stream.Replayable).Seek(p), ErrBadPosition)
}

func TestOnlyInputsWithASecondBeginningReplay(t *testing.T) {
	s := open(t, KeyedOptions{Reader: strings.NewReader("a\nb 2\n")})
	_, replays := s.(stream.Replayable)
	require.False(t, replays)
	items, err := drain(s, 10)
	require.NoError(t, err)
	require.Equal(t, []pair{{"a", 1}, {"b", 2}}, pairs(items))
	done, total := s.(stream.Progresser).Progress()
	require.EqualValues(t, 6, done)
	require.Zero(t, total, "unknown")
}

func TestReaderIsReadOnce(t *testing.T) {
	factory, err := OpenKeyed(KeyedOptions{Reader: strings.NewReader("a\n")})
	require.NoError(t, err)
	for i := range 2 {
		s, err := factory(0, 1)
		require.NoError(t, err)
		_, err = drain(s, 10)
		if i == 0 {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, "read before")
		}
		require.NoError(t, s.Close())
	}
}

func TestCloseInterruptsRead(t *testing.T) {
	for _, sent := range []string{"", "a\n", "a\nb\n0123456789"} { // within peek, or within lines
		r, w := io.Pipe()
		s := open(t, KeyedOptions{Reader: r})
		if sent != "" {
			go io.WriteString(w, sent)
		}
		done := make(chan error)
		go func() {
			_, err := drain(s, 10)
			done <- err
		}()
		require.NoError(t, s.Close())
		select {
		case err := <-done:
			require.ErrorIs(t, err, ErrClosed)
		case <-time.After(time.Minute):
			t.Fatal("Read did not return")
		}
		w.Close()
	}
}

// stuck is a reader that, like a terminal, nothing but input wakes.
type stuck struct{ release chan struct{} }

func (s stuck) Read([]byte) (int, error) {
	<-s.release
	return 0, io.EOF
}

func TestCloseDoesNotWaitForAStuckReader(t *testing.T) {
	r := stuck{make(chan struct{})}
	s := open(t, KeyedOptions{Reader: r})
	done := make(chan error)
	go func() {
		_, err := s.Read(make([]Keyed, 1))
		done <- err
	}()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, ErrClosed)
	close(r.release) // goleak sees that the pump ends now
}

func TestItemsAreNotHeldBackWhileAPipePauses(t *testing.T) {
	r, w := io.Pipe()
	s := open(t, KeyedOptions{Reader: r, Format: FormatText})
	go io.WriteString(w, "first one\nsecond 2\npart") // "one" is no weight
	dst := make([]Keyed, 10)
	_, err := s.Read(dst)
	require.ErrorContains(t, err, "line 1")

	r, w = io.Pipe()
	s = open(t, KeyedOptions{Reader: r})
	go io.WriteString(w, "first 1\nsecond 2\npart")
	n, err := s.Read(dst)
	require.NoError(t, err)
	require.Equal(t, []pair{{"first", 1}, {"second", 2}}, pairs(dst[:n]))
}

func TestCloseTwiceAndUseAfter(t *testing.T) {
	s := open(t, KeyedOptions{Path: writeFile(t, "a.txt", []byte("a\nb\n"))})
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	_, err := s.Read(make([]Keyed, 1))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, s.(stream.Replayable).Seek(stream.Position{}), ErrClosed)
}

func TestInputsAreReadByOnePartition(t *testing.T) {
	factory, err := OpenKeyed(KeyedOptions{Path: writeFile(t, "a.txt", nil)})
	require.NoError(t, err)
	_, err = factory(0, 2)
	require.ErrorContains(t, err, "one partition, not 2")
	_, err = factory(1, 1)
	require.Error(t, err)
}

func TestEmptyInputHasNoItems(t *testing.T) {
	for _, name := range []string{"a.txt", "a.csv", "a.jsonl", "a.pcap", "a.pcapng", "a.parquet", "a"} {
		for _, content := range [][]byte{nil, zipped(t, nil)} {
			require.Empty(t, read(t, KeyedOptions{Path: writeFile(t, name, content), Key: "key"}), name)
		}
	}
}

func TestProgressReachesTheTotal(t *testing.T) {
	for _, s := range samples(t, 200) {
		s.o.Path = writeFile(t, s.name, s.content)
		src := open(t, s.o)
		_, total := src.(stream.Progresser).Progress()
		require.Positive(t, total)
		_, err := drain(src, 50)
		require.NoError(t, err)
		done, again := src.(stream.Progresser).Progress()
		require.Equal(t, total, again)
		require.Equal(t, total, done, s.name)
	}
}

// TestErrorsOfTheDeviceAreNoBadRows: a policy for bad data must not hide a disk that fails.
func TestErrorsOfTheDeviceAreNoBadRows(t *testing.T) {
	broken := errors.New("device is on fire")
	for _, s := range samples(t, 20) {
		r := io.MultiReader(bytes.NewReader(s.content[:len(s.content)*2/3]), iotest.ErrReader(broken))
		s.o.Reader, s.o.Path = r, s.name
		_, err := drain(open(t, s.o), 10)
		require.ErrorIs(t, err, broken, s.name)
	}
}

// TestReadersThatReturnLittle runs every format over a reader of one byte at a time.
func TestReadersThatReturnLittle(t *testing.T) {
	for _, s := range samples(t, 60) {
		s.o.Path = writeFile(t, s.name, s.content)
		want := read(t, s.o)
		s.o.Reader, s.o.Path = iotest.DataErrReader(iotest.OneByteReader(openFile(t, s.o.Path))), s.name
		require.Equal(t, want, read(t, s.o), s.name)
	}
}

func TestStandardInput(t *testing.T) {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	old := os.Stdin
	os.Stdin = r
	defer func() { os.Stdin = old }()
	s := open(t, KeyedOptions{Path: Stdin})
	_, err = w.WriteString("a 2\n")
	require.NoError(t, err)
	dst := make([]Keyed, 3)
	// Items come as soon as they are there, though the end does not.
	_, err = w.WriteString("b 3\n")
	require.NoError(t, err)
	n, err := s.Read(dst)
	require.NoError(t, err)
	require.Equal(t, []pair{{"a", 2}, {"b", 3}}, pairs(dst[:n]))
	done := make(chan error)
	go func() {
		_, err := s.Read(dst)
		done <- err
	}()
	require.NoError(t, s.Close())
	require.ErrorIs(t, <-done, ErrClosed)
	require.NoError(t, w.Close()) // the pump's read ends; standard input itself stayed open
	_, err = r.Read(make([]byte, 1))
	require.Equal(t, io.EOF, err)
}
