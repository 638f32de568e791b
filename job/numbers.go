package job

import (
	"fmt"
	"math"
	"strconv"

	"github.com/afstream/afstream/connector"
	"github.com/afstream/afstream/stream"
)

// valueBytes is the only number that packets have.
const valueBytes = "bytes"

// numberInput is an opened input of numbers.
type numberInput struct {
	origin
	open    stream.NewSource[float64]
	counted stream.NewSource[float64] // open, with the rows it leaves out counted
}

// openNumbers opens keyed items as numbers: what Input.Key names, the bytes of packets, or, of made-up items, the ranks of
// their keys. The key and not the weight is read, since weights cannot be negative and a line of text may hold a key alone.
func (k *KeyedItems) openNumbers() (*numberInput, error) {
	items, number := *k, keyNumber
	packets := k.Input
	packets.Key, packets.Weight = "", "" // those of packets have other names
	switch {
	case k.Input.Path == "":
		number = rankNumber
	case isCapture(packets):
		if k.Input.Key != "" && k.Input.Key != valueBytes {
			return nil, fmt.Errorf("%w: value %q: the number of a packet is its %s", ErrSettings, k.Input.Key, valueBytes)
		}
		packets.Weight = valueBytes
		items.Input, number = packets, weightNumber
	}
	keyed, err := items.openInput()
	if err != nil {
		return nil, err
	}
	in := &numberInput{origin: keyed.origin}
	in.open = func(part, parts int) (stream.Source[float64], error) {
		var scratch []byte // of this source alone
		t := translation[connector.Keyed, float64]{
			name: in.name, unit: "row", skip: k.Input.OnBad == connector.SkipBad,
			convert: func(item connector.Keyed) (x float64, ok bool, err error) {
				x, scratch, err = number(&item, scratch[:0])
				return x, true, err
			},
		}
		return t.open(keyed.open)(part, parts)
	}
	in.counted = count(in.rows, in.open)
	return in, nil
}

// keyNumber reads the key as a number. scratch is for its text.
func keyNumber(item *connector.Keyed, scratch []byte) (float64, []byte, error) {
	scratch, err := item.Key.AppendText(scratch)
	if err != nil {
		return 0, scratch, err
	}
	x, err := strconv.ParseFloat(string(scratch), 64)
	if err != nil || math.IsNaN(x) || math.IsInf(x, 0) {
		return 0, scratch, fmt.Errorf("%q is not a finite number", scratch)
	}
	return x, scratch, nil
}

func weightNumber(item *connector.Keyed, scratch []byte) (float64, []byte, error) {
	return item.Weight, scratch, nil
}

// rankNumber reads the rank in the key of a made-up item, which has a letter before it.
func rankNumber(item *connector.Keyed, scratch []byte) (float64, []byte, error) {
	scratch, err := item.Key.AppendText(scratch)
	if err != nil {
		return 0, scratch, err
	}
	x, err := strconv.ParseUint(string(scratch[min(1, len(scratch)):]), 10, 64)
	if err != nil {
		return 0, scratch, fmt.Errorf("key %q has no rank", scratch)
	}
	return float64(x), scratch, nil
}
