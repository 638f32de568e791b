package job

import (
	"cmp"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func code(t require.TestingT, text string) Code {
	c, err := newCode(text)
	require.NoError(t, err)
	return c
}

// TestCode: a code has the text that it was made of, and codes are in order as their texts are.
func TestCode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[A-Za-z0-9é ]{0,10}\x00?`)
		a, b := text.Draw(t, "a"), text.Draw(t, "b")
		for _, s := range []string{a, b} {
			c, err := newCode(s)
			if len(s) > codeBytes || strings.Contains(s, "\x00") {
				require.ErrorIs(t, err, errCode)
				return
			}
			require.NoError(t, err)
			require.Equal(t, s, c.String())
			of, err := newCode([]byte(s))
			require.NoError(t, err)
			require.Equal(t, c, of)
		}
		require.Equal(t, cmp.Compare(a, b), cmp.Compare(code(t, a), code(t, b)))
	})
	wire, err := json.Marshal(map[string]Code{"key": code(t, "ATL"), "none": 0})
	require.NoError(t, err)
	require.JSONEq(t, `{"key": "ATL", "none": ""}`, string(wire))
}
