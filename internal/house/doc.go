// Package house holds no code, only the test that guards how the packages may depend on one another (docs/design.md,
// "The house") and that each of them says what it is for.
package house
