package connector

import (
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/parquet-go/parquet-go"

	"github.com/afstream/afstream/stream"
)

// maxSpooled bounds Parquet that must be held in memory since it comes compressed or
// from a pipe: its directory is at the end.
const maxSpooled = 256 << 20

// parquetBatch is how many values are taken from a column at once.
const parquetBatch = 256

// parquetDecoder reads items from one or two columns of a Parquet file. Other columns
// are not touched.
type parquetDecoder struct {
	rows        *rows
	meter       *meter
	key, weight *columnReader // weight may be nil
	keys, loads []parquet.Value
	next, have  int    // rows next..have-1 of the batch are still to be used
	row         uint64 // rows used
	text        []byte // scratch for keys that are numbers
}

func buildParquet(c *content, r *rows, from stream.Position, o KeyedOptions) (d decoder[Keyed], skip uint64, err error) {
	r.unit = "row"
	err = guard(func() error {
		d, skip, err = openParquet(c, r, from, o)
		return err
	})
	return d, skip, err
}

func openParquet(c *content, r *rows, from stream.Position, o KeyedOptions) (decoder[Keyed], uint64, error) {
	at, size, err := c.randomAccess()
	if err != nil {
		return nil, 0, r.fail(1, err)
	}
	f, err := parquet.OpenFile(at, size, parquet.SkipPageIndex(true), parquet.SkipBloomFilters(true))
	if err != nil {
		return nil, 0, fmt.Errorf("read %s: not a parquet file: %w", r.input, err)
	}
	d := &parquetDecoder{rows: r, meter: c.meter, keys: make([]parquet.Value, parquetBatch)}
	if d.key, err = newColumnReader(f, "key", o.Key); err != nil {
		return nil, 0, fmt.Errorf("read %s: %w", r.input, err)
	}
	if o.Weight != "" {
		if d.weight, err = newColumnReader(f, "weight", o.Weight); err != nil {
			return nil, 0, fmt.Errorf("read %s: %w", r.input, err)
		}
		d.loads = make([]parquet.Value, parquetBatch)
	}
	d.meter.total.Store(f.NumRows())
	if from.Line == 0 {
		return d, from.Item, nil
	}
	if from.Line > uint64(f.NumRows()) {
		return nil, 0, fmt.Errorf("%w: row %d of %d", ErrBadPosition, from.Line, f.NumRows())
	}
	d.row = from.Line
	d.meter.done.Store(int64(d.row))
	d.key.seek(d.row)
	if d.weight != nil {
		d.weight.seek(d.row)
	}
	return d, 0, nil
}

// randomAccess gives access to any byte of a content, if need be by holding it all.
func (c *content) randomAccess() (io.ReaderAt, int64, error) {
	if at, ok := c.raw.(io.ReaderAt); ok && c.plain != nil {
		size, err := c.plain.Seek(0, io.SeekEnd)
		return at, size, err
	}
	var b strings.Builder
	n, err := io.Copy(&b, io.LimitReader(c, maxSpooled+1))
	if err != nil {
		return nil, 0, err
	}
	if n > maxSpooled {
		return nil, 0, fmt.Errorf("parquet that is compressed or from a pipe is larger than %d MiB: read it as a plain file", maxSpooled>>20)
	}
	return strings.NewReader(b.String()), n, nil
}

func (d *parquetDecoder) read(dst []Keyed) (n int, err error) {
	for n < len(dst) {
		if d.next == d.have {
			if n > 0 {
				break
			}
			if err := guard(d.fill); err != nil {
				return 0, d.end(err)
			}
		}
		i := d.next
		d.next++
		d.row++
		err := d.item(i, &dst[n])
		if err == nil {
			n++
			continue
		}
		if err := d.rows.bad(d.row, err); err != nil {
			return n, err
		}
	}
	d.meter.done.Store(int64(d.row))
	return n, nil
}

// end is how a file ends whose columns could not be read further.
func (d *parquetDecoder) end(err error) error {
	if err == io.EOF {
		return io.EOF
	}
	if !fromDevice(err) {
		err = damage("parquet", err)
	}
	return d.rows.broken(d.row+1, err)
}

// fill reads the next batch, of the same rows in both columns.
func (d *parquetDecoder) fill() error {
	d.next, d.have = 0, 0
	n, err := d.key.read(d.keys)
	if err != nil {
		return err
	}
	if d.weight != nil {
		for have := 0; have < n; {
			m, err := d.weight.read(d.loads[have:n])
			if err == io.EOF {
				return errors.New("the weight column has fewer rows than the key column")
			}
			if err != nil {
				return err
			}
			have += m
		}
	}
	d.have = n
	return nil
}

// item makes dst the item of row i of the batch.
func (d *parquetDecoder) item(i int, dst *Keyed) error {
	var err error
	if d.text, err = appendKey(d.text[:0], d.keys[i]); err != nil {
		return err
	}
	dst.Key.set(d.text)
	dst.Hash = dst.Key.hash()
	dst.Weight = 1
	if d.weight != nil {
		dst.Weight, err = weightOf(d.loads[i])
	}
	return err
}

// appendKey appends the text of a value. Integers are decimal whatever their logical
// type; a time is the number that stands for it.
func appendKey(dst []byte, v parquet.Value) ([]byte, error) {
	if v.IsNull() {
		return dst, errMissingKey
	}
	switch v.Kind() {
	case parquet.ByteArray, parquet.FixedLenByteArray:
		if len(v.ByteArray()) == 0 {
			return dst, errMissingKey
		}
		return append(dst, v.ByteArray()...), nil
	case parquet.Int32:
		return strconv.AppendInt(dst, int64(v.Int32()), 10), nil
	case parquet.Int64:
		return strconv.AppendInt(dst, v.Int64(), 10), nil
	case parquet.Float:
		return strconv.AppendFloat(dst, float64(v.Float()), 'g', -1, 32), nil
	case parquet.Double:
		return strconv.AppendFloat(dst, v.Double(), 'g', -1, 64), nil
	case parquet.Boolean:
		return strconv.AppendBool(dst, v.Boolean()), nil
	}
	return append(dst, v.String()...), nil // Int96
}

// weightOf returns the weight that a value is.
func weightOf(v parquet.Value) (w float64, err error) {
	if v.IsNull() {
		return 0, errNoWeight
	}
	switch v.Kind() {
	case parquet.Int32:
		w = float64(v.Int32())
	case parquet.Int64:
		w = float64(v.Int64())
	case parquet.Float:
		w = float64(v.Float())
	case parquet.Double:
		w = v.Double()
	default:
		return 0, errTextWeight
	}
	if !(w >= 0 && w <= math.MaxFloat64) {
		return 0, fmt.Errorf("weight %v is not a finite number of at least 0", w)
	}
	return w + 0, nil
}

// columnReader reads the values of a flat column, one a row, through all row groups.
type columnReader struct {
	groups []parquet.RowGroup // those not yet begun
	column int
	skip   uint64 // rows of groups to pass over first
	pages  parquet.Pages
	page   parquet.Page
	values parquet.ValueReader
}

// newColumnReader finds a flat column by name.
func newColumnReader(f *parquet.File, what, name string) (*columnReader, error) {
	var names []string
	for _, c := range f.Root().Columns() {
		names = append(names, c.Name())
	}
	i, err := column(what, name, names)
	if err != nil {
		return nil, err
	}
	c := f.Root().Columns()[i]
	if !c.Leaf() || c.MaxRepetitionLevel() > 0 {
		return nil, fmt.Errorf("%s column %q: is nested or repeated", what, name)
	}
	return &columnReader{groups: f.RowGroups(), column: c.Index()}, nil
}

// seek moves a fresh reader to a row.
func (c *columnReader) seek(row uint64) { c.skip = row }

// read returns at least one value, or io.EOF.
func (c *columnReader) read(dst []parquet.Value) (int, error) {
	for {
		if c.values != nil {
			n, err := c.values.ReadValues(dst)
			if err == io.EOF {
				c.values = nil
			} else if err != nil {
				return 0, err
			}
			if n > 0 {
				return n, nil
			}
			if err == nil {
				return 0, io.ErrNoProgress
			}
			continue
		}
		if err := c.nextPage(); err != nil {
			return 0, err
		}
	}
}

// nextPage opens the next page, of the next row group if need be.
func (c *columnReader) nextPage() error {
	parquet.Release(c.page)
	c.page = nil
	if c.pages == nil {
		if err := c.nextGroup(); err != nil {
			return err
		}
	}
	page, err := c.pages.ReadPage()
	if err == io.EOF {
		err = c.pages.Close()
		c.pages = nil
		return err // nil: there may be another group
	}
	if err != nil {
		return err
	}
	c.page, c.values = page, page.Values()
	return nil
}

func (c *columnReader) nextGroup() error {
	for len(c.groups) > 0 {
		g := c.groups[0]
		c.groups = c.groups[1:]
		if n := uint64(g.NumRows()); c.skip > 0 && c.skip >= n {
			c.skip -= n
			continue
		}
		c.pages = g.ColumnChunks()[c.column].Pages()
		if c.skip > 0 {
			err := c.pages.SeekToRow(int64(c.skip))
			c.skip = 0
			return err
		}
		return nil
	}
	return io.EOF
}

// guard turns a panic, which damaged files can cause within the Parquet library, into
// an error. f must do little else, since panics of its own would look the same.
func guard(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("parquet: %w: %v", errCut, p)
		}
	}()
	return f()
}

// at implements part of decoder. Rows lead back to their place, so no offset is needed.
func (d *parquetDecoder) at() (offset int64, line uint64) { return 0, d.row }
