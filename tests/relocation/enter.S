#define ZMM 512
#define MASK 2560
#define GPR 2624
#define FLAGS 2752

    .bss
    .globl has_zmm, target
has_zmm: .skip 8
target: .skip 8
own_stack: .skip 8

    .text
    .globl enter_window, leave_window
enter_window:
    push %rbx
    push %rbp
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, own_stack(%rip)
    fxrstor64 (%rdi)
    cmpb $0, has_zmm(%rip)
    je 1f
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqu64 ZMM+64*\n(%rdi), %zmm\n
    .endr
    .irp n,0,1,2,3,4,5,6,7
    kmovq MASK+8*\n(%rdi), %k\n
    .endr
    jmp 2f
1:
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu ZMM+64*\n(%rdi), %ymm\n
    .endr
2:
    pushq FLAGS(%rdi)
    popfq
    mov GPR(%rdi), %rax
    mov GPR+8(%rdi), %rcx
    mov GPR+16(%rdi), %rdx
    mov GPR+24(%rdi), %rbx
    mov GPR+32(%rdi), %rsp
    mov GPR+40(%rdi), %rbp
    mov GPR+48(%rdi), %rsi
    mov GPR+64(%rdi), %r8
    mov GPR+72(%rdi), %r9
    mov GPR+80(%rdi), %r10
    mov GPR+88(%rdi), %r11
    mov GPR+96(%rdi), %r12
    mov GPR+104(%rdi), %r13
    mov GPR+112(%rdi), %r14
    mov GPR+120(%rdi), %r15
    mov GPR+56(%rdi), %rdi
    jmp *target(%rip)

leave_window:
    mov %rax, saved+GPR(%rip)
    mov %rcx, saved+GPR+8(%rip)
    mov %rdx, saved+GPR+16(%rip)
    mov %rbx, saved+GPR+24(%rip)
    mov %rsp, saved+GPR+32(%rip)
    mov %rbp, saved+GPR+40(%rip)
    mov %rsi, saved+GPR+48(%rip)
    mov %rdi, saved+GPR+56(%rip)
    mov %r8, saved+GPR+64(%rip)
    mov %r9, saved+GPR+72(%rip)
    mov %r10, saved+GPR+80(%rip)
    mov %r11, saved+GPR+88(%rip)
    mov %r12, saved+GPR+96(%rip)
    mov %r13, saved+GPR+104(%rip)
    mov %r14, saved+GPR+112(%rip)
    mov %r15, saved+GPR+120(%rip)
    mov own_stack(%rip), %rsp
    pushfq
    popq saved+FLAGS(%rip)
    cld
    lea saved(%rip), %rdi
    fxsave64 (%rdi)
    cmpb $0, has_zmm(%rip)
    je 1f
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31
    vmovdqu64 %zmm\n, ZMM+64*\n(%rdi)
    .endr
    .irp n,0,1,2,3,4,5,6,7
    kmovq %k\n, MASK+8*\n(%rdi)
    .endr
    jmp 2f
1:
    .irp n,0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15
    vmovdqu %ymm\n, ZMM+64*\n(%rdi)
    .endr
2:
    fxrstor64 at_rest(%rip)
    vzeroupper
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbp
    pop %rbx
    ret

    .section .note.GNU-stack,"",@progbits
