package ringbuf

import "testing"

// fuzzRing plays a program on a ring and the model: byte 0 chooses the capacity,
// byte 1 how far the start lies below the wrap, and each further byte pushes
// (even) or pops (odd) between 1 and 8 times.
func fuzzRing(f *testing.F, k kind) {
	f.Add([]byte{0, 0, 0, 1, 0, 1})
	f.Add([]byte{2, 3, 14, 15, 14, 15, 14, 15})
	f.Add([]byte{4, 1, 6, 3, 6, 3, 6, 3, 6, 3, 15, 15})
	f.Add([]byte{63, 9, 14, 14, 14, 14, 14, 14, 14, 14, 14, 15, 0})
	f.Fuzz(func(t *testing.T, program []byte) {
		if len(program) < 2 {
			return
		}
		capacity := int(program[0]%70) + 1
		m := &model{ring: k.make(capacity, -uint64(program[1]))}
		for _, op := range program[2:min(len(program), 300)] {
			for range op/2%8 + 1 {
				if op%2 == 0 {
					m.push(t)
				} else {
					m.pop(t)
				}
			}
			m.check(t)
		}
	})
}

func FuzzSPSC(f *testing.F) { fuzzRing(f, kinds[0]) }
func FuzzMPSC(f *testing.F) { fuzzRing(f, kinds[1]) }
