package backup

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// Marker is a Store that also keeps marks: one small record for each owner, the newest, at about a hundredth of the cost
// of a batch, and without a goroutine switch. It is for positions that are written every few hundred items and replace each other.
//
// A mark survives what batches survive without Sync: the end of the process at any moment. After a power cut the batches
// before it may be gone and the mark may not; whoever reads one must be able to tell (see Partition.Mark).
type Marker interface {
	// Mark replaces the mark of an owner at once. It reports false if the store cannot keep this one (it is longer than
	// MaxMarkBytes, or the store promises more than marks survive): write a batch then. record is the caller's again
	// when it returns.
	//
	// Errors: ErrFenced, ErrName, ErrClosed, or what the disk reported.
	Mark(owner string, epoch uint64, record []byte) (bool, error)

	// ReadMark returns a copy of the newest mark of an owner that is whole, nil if there is none.
	ReadMark(owner string) ([]byte, error)

	// DropMarks deletes the marks of all owners that start with prefix.
	DropMarks(prefix string) error
}

// MaxMarkBytes is the most that a mark may be long.
const MaxMarkBytes = 1 << 10

// Mark makes the processed positions of all input channels durable by themselves, before it returns, without any change of
// the state. It reports false if that cannot be done this way: make a Commit of them then. A commit may be in flight,
// and the positions may be beyond its own.
//
// A mark counts for Load only if the commit that was the newest durable one when it was made, or a later one, is still
// there: what the state lacks is known from that one on.
//
// Cost: a tenth of a microsecond in Badger, or a microsecond where it cannot map a file and has to write. It allocates
// nothing in steady state.
// One goroutine may call it at a time. Errors: ErrNotLoaded, and those of Marker.Mark.
func (p *Partition) Mark(inputs []Input) (bool, error) {
	m, ok := p.store.(Marker)
	if !ok {
		return false, nil
	}
	p.mu.Lock()
	loaded, base := p.loaded, p.current
	p.mu.Unlock()
	switch {
	case !loaded:
		return false, fmt.Errorf("mark %s: %w", p.owner, ErrNotLoaded)
	case base.number == 0: // there is nothing that it could be based on
		return false, nil
	}
	p.markRecord = appendMark(p.markRecord[:0], &mark{epoch: p.epoch, generation: base.number, deltas: base.deltas, inputs: inputs})
	ok, err := m.Mark(p.owner, p.epoch, p.markRecord)
	if err != nil {
		return false, fmt.Errorf("mark %s: %w", p.owner, err)
	}
	return ok, nil
}

// mark is the content of a mark: positions, the epoch of the writer, and which commit was the newest durable one.
type mark struct {
	epoch              uint64
	generation, deltas uint64
	inputs             []Input
}

func appendMark(dst []byte, m *mark) []byte {
	at := len(dst)
	dst = startRecord(dst, kindMark)
	dst = binary.AppendUvarint(dst, m.epoch)
	dst = binary.AppendUvarint(dst, m.generation)
	dst = binary.AppendUvarint(dst, m.deltas)
	dst = binary.AppendUvarint(dst, uint64(len(m.inputs)))
	for _, in := range m.inputs {
		dst = binary.AppendUvarint(dst, in.Channel)
		dst = binary.AppendUvarint(dst, in.Epoch)
		dst = binary.AppendUvarint(dst, in.Seq)
	}
	return sealRecord(dst, at)
}

// decodeMark is the inverse; it returns what is wrong with b, if anything.
func decodeMark(b []byte) (m mark, why string) {
	f, _ := openRecord(b, kindMark)
	m.epoch, m.generation, m.deltas = f.uint(), f.uint(), f.uint()
	m.inputs = make([]Input, f.count(3))
	for i := range m.inputs {
		m.inputs[i] = Input{Channel: f.uint(), Position: Position{Epoch: f.uint(), Seq: f.uint()}}
	}
	f.end()
	return m, f.why
}

// readMark moves the positions that were found on to those of the mark, where it is later. Both lie on the one way that
// the partition took through its inputs, so the later one of each channel is that of the later one of the two.
func (f *finder) readMark() error {
	m, ok := f.p.store.(Marker)
	if !ok || !f.restored.Found {
		return nil
	}
	record, err := m.ReadMark(f.p.owner)
	if err != nil || record == nil {
		return err
	}
	at, why := decodeMark(record)
	if why != "" {
		f.restored.Damaged = append(f.restored.Damaged, damaged([]byte("mark of "+f.p.owner), why))
		return nil
	}
	if at.epoch < f.step.epoch { // a later epoch has taken it into account, or gives numbers again that it names
		return nil
	}
	if at.generation > f.current.number || at.generation == f.current.number && at.deltas > f.current.deltas {
		return nil
	}
	f.restored.Inputs = slices.Clone(f.restored.Inputs) // those of the commit decide which log entries may go
	for _, in := range at.inputs {
		i, found := slices.BinarySearchFunc(f.restored.Inputs, in.Channel, compareChannel)
		if found && f.restored.Inputs[i].Less(in.Position) {
			f.restored.Inputs[i].Position = in.Position
		}
	}
	return nil
}
