package remote

import (
	"errors"
	"fmt"

	"github.com/afstream/afstream/backup"
)

// codeOK is the code of what went well; the others are places in the list of sentinels.
const (
	codeOK = iota
	codeFenced
	codeTooLarge
	codeKey
	codeName
	codeDiskFull
	codeDamaged
	codeOther
)

// sentinel is what an error with a code wraps; nil for codeOther.
func sentinel(code byte) error {
	switch code {
	case codeFenced:
		return backup.ErrFenced
	case codeTooLarge:
		return backup.ErrTooLarge
	case codeKey:
		return backup.ErrKey
	case codeName:
		return backup.ErrName
	case codeDiskFull:
		return backup.ErrDiskFull
	case codeDamaged:
		return backup.ErrDamaged
	}
	return nil
}

// maxErrorText bounds the text of an error on its way, in bytes.
const maxErrorText = 400

// result is an error on its way: which of the errors of package backup it is, and its text.
type result struct {
	code byte
	text string
}

func resultOf(err error) result {
	if err == nil {
		return result{}
	}
	text := err.Error()
	text = text[:min(len(text), maxErrorText)]
	for code := byte(codeFenced); code < codeOther; code++ {
		if errors.Is(err, sentinel(code)) {
			return result{code, text}
		}
	}
	return result{codeOther, text}
}

// err is what resultOf was made of, as far as errors.Is can tell, with the name of the server.
func (r result) err(server string) error {
	if r.code == codeOK {
		return nil
	}
	return &serverError{text: fmt.Sprintf("backup server %s: %s", server, r.text), is: sentinel(r.code)}
}

// serverError keeps the server's words, which have those of the sentinel in them.
type serverError struct {
	text string
	is   error
}

func (e *serverError) Error() string { return e.text }
func (e *serverError) Unwrap() error { return e.is }

func appendResult(dst []byte, r result) []byte {
	return appendBytes(append(dst, r.code), []byte(r.text))
}

func (r *reader) result() (x result) {
	x.code = r.byte()
	text := r.bytes()
	if x.code > codeOther || len(text) > maxErrorText || x.code == codeOK && len(text) > 0 {
		r.fail()
	}
	x.text = string(text)
	return x
}
