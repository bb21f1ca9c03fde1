# The launcher for x86-64: `launch PLAN PROGRAM ARGUMENT…` maps a plan and carries out its steps.
#
# It does what retinue_launcher.py does, without an interpreter to start. `steps.py` says what a
# plan looks like; every path, number and decision is in there. This is a whole executable, header
# included: `python tools/assemble_launchers.py` makes it, and a test does it again to compare.

        .intel_syntax noprefix
        .set    ORIGIN, 0x400000
        .set    PLAN, 0x10000000        # BASE in steps.py
        .set    LONGEST, 0x1000000
        .set    ERRORS, 134
        .set    FAILED, 125
        .set    NOT_FOUND, 127
        .set    OPEN, 2                 # system calls
        .set    MMAP, 9
        .set    WRITE, 1
        .set    EXECVE, 59
        .set    WAIT4, 61
        .set    EXIT_GROUP, 231

file:   .byte 0x7f
        .ascii "ELF"
        .byte 2, 1, 1, 0                # 64 bits, little end first
        .quad 0
        .short 2, 62                    # an executable, for x86-64
        .int 1
        .quad ORIGIN + start - file
        .quad segments - file
        .quad 0
        .int 0
        .short 64, 56, 2, 0, 0, 0
segments:
        .int 1, 5                       # this file, to be read and executed
        .quad 0, ORIGIN, ORIGIN, end - file, end - file, 0x1000
        .int 0x6474e551, 6              # a stack, not to be executed
        .quad 0, 0, 0, 0, 0, 16

start:  mov     r15, rsp                # argc, argv, 0, environment, 0
        cmp     qword ptr [r15], 3
        jb      unusable
        mov     eax, OPEN
        mov     rdi, [r15 + 16]
        mov     esi, 0x80000            # closed on exec
        syscall
        test    eax, eax
        js      unusable
        mov     r8d, eax
        mov     eax, MMAP
        mov     edi, PLAN
        mov     esi, LONGEST
        mov     edx, 3                  # to be read and written
        mov     r10d, 0x100002          # a private copy, exactly there
        xor     r9d, r9d
        syscall
        cmp     rax, PLAN
        jne     unusable
        mov     rbx, [rax]

walk:   mov     r14d, [rbx + 4]         # which arguments are results of earlier calls
        mov     ecx, 6
argument:
        mov     rdx, [rbx + 8 * rcx]
        bt      r14d, ecx
        jnc     given
        mov     rdx, [rdx]
given:  push    rdx
        dec     ecx
        jnz     argument
        pop     rdi
        pop     rsi
        pop     rdx
        pop     r10
        pop     r8
        pop     r9
        mov     eax, [rbx]
        test    eax, eax
        js      other
        syscall
        mov     rbp, rax
        mov     rdx, [rbx + 56]
        mov     [rdx], rax
        mov     rcx, [rbx + 80]
        test    rax, rax
        cmovz   rcx, [rbx + 72]
        cmovs   rcx, [rbx + 64]
        add     rbx, rcx
        jmp     walk

other:  inc     eax                     # -1: end as a child does, -2: become the program, -3: give up
        jz      end_as
        inc     eax
        jnz     give_up

        lea     rsi, [r15 + 24]
        mov     rdi, [rsi]
        mov     rcx, [r15]
        lea     rdx, [r15 + 8 * rcx + 16]
        mov     eax, EXECVE
        syscall
        mov     rbp, rax
        mov     rdi, [r15 + 24]
        mov     esi, NOT_FOUND

give_up:                                # says rdi and what the last call said, and ends with rsi
        mov     r12d, esi
        call    say
        neg     ebp
        cmp     ebp, ERRORS
        jb      known
        xor     ebp, ebp
known:  shl     ebp, 6
        mov     edi, PLAN
        mov     rdi, [rdi + 8]
        add     rdi, rbp
        call    say
        mov     edi, r12d
leave:  mov     eax, EXIT_GROUP
        syscall

end_as: mov     ebx, edi                # reaps whatever ends until this child does
next:   mov     edi, -1
        lea     rsi, [rsp - 8]
        xor     edx, edx
        xor     r10d, r10d
        mov     eax, WAIT4
        syscall
        cmp     eax, -4                 # interrupted
        je      next
        mov     edi, FAILED
        test    eax, eax
        js      leave
        cmp     eax, ebx
        jne     next
        mov     eax, [rsi]
        movzx   edi, ah
        and     eax, 0x7f
        jz      leave
        lea     edi, [rax + 128]        # as a shell says that a signal ended it
        jmp     leave

unusable:
        lea     rdi, [rip + message]
        call    say
        mov     edi, FAILED
        jmp     leave

say:    mov     rsi, rdi
        or      rdx, -1
length: inc     rdx
        cmp     byte ptr [rsi + rdx], 0
        jne     length
        mov     edi, 2
        mov     eax, WRITE
        syscall
        ret

message:
        .asciz  "retinue sandbox: this is started by retinue, with a plan\n"
end:
